"""Reads the kernel's counters of a connection, and ends one, by the descriptor of libzmq's socket.

libzmq closes its descriptors by itself, and the system gives their numbers out again. So each call compares
the peer with the one that the connection had when it was accepted.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

_INFO = struct.Struct("=120x2Q")
"""Of TCP_INFO: bytes that the peer has acknowledged, and bytes that came from it."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_TCP = (socket.AF_INET, socket.AF_INET6)


class Counters(NamedTuple):
    """Bytes since the connection began: acknowledged by the peer, received; -1 where they are not counted.

    unread: bytes in the kernel that the peer has not acknowledged or, on this machine, not read.
    """

    acknowledged: int
    received: int
    unread: int


def peer_of(descriptor: int) -> str:
    """Return the peer of a connection as text: its address and port; empty for ipc.

    Raises OSError if there is no such connection any more.
    """
    with _borrowed(descriptor) as connection:
        return _peer(connection)


def counters_of(descriptor: int, peer: str) -> Counters | None:
    """Return the counters of the connection to a peer; None if it has ended."""
    with suppress(OSError), _borrowed(descriptor, _family_of(peer)) as connection:
        if _peer(connection) == peer:
            unread = array.array("i", [0])
            fcntl.ioctl(descriptor, termios.TIOCOUTQ, unread)
            if connection.family not in _TCP or _TCP_INFO is None:
                return Counters(-1, -1, unread[0])
            info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
            acknowledged, received = _INFO.unpack(info)
            return Counters(acknowledged, received, unread[0])
    return None


def end(descriptor: int, peer: str) -> bool:
    """End the connection to a peer; libzmq finds out and closes it. False if it has ended before."""
    with suppress(OSError), _borrowed(descriptor, _family_of(peer)) as connection:
        if _peer(connection) == peer:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False


@contextmanager
def _borrowed(descriptor: int, family: int = -1) -> Iterator[socket.socket]:
    """Use a descriptor of libzmq as a socket. family: -1 asks the kernel. Raises OSError if it is none."""
    connection = socket.socket(family, socket.SOCK_STREAM if family >= 0 else -1, 0, fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()


def _family_of(peer: str) -> int:
    """Return the family of a connection: the text of an IPv6 address has colons of its own."""
    if not peer:
        return socket.AF_UNIX
    return socket.AF_INET6 if peer.count(":") > 1 else socket.AF_INET


def _peer(connection: socket.socket) -> str:
    if connection.family not in _TCP:
        return ""
    host, port = connection.getpeername()[:2]
    return f"{host}:{port}"
