"""Ends a connection by the descriptor of libzmq's socket.

libzmq closes its descriptors by itself, and the system gives their numbers out again. So each call compares
the peer with the one that the connection had when it was accepted.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_TCP = (socket.AF_INET, socket.AF_INET6)


def peer_of(descriptor: int) -> str:
    """Return the peer of a connection as text: its address and port; empty for ipc.

    Raises OSError if there is no such connection any more.
    """
    with _borrowed(descriptor) as connection:
        return _peer(connection)


def end(descriptor: int, peer: str) -> bool:
    """End the connection to a peer; libzmq finds out and closes it. False if it has ended before."""
    with suppress(OSError), _borrowed(descriptor) as connection:
        if _peer(connection) == peer:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Use a descriptor of libzmq as a socket. Raises OSError if it is none."""
    connection = socket.socket(fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()


def _peer(connection: socket.socket) -> str:
    if connection.family not in _TCP:
        return ""
    host, port = connection.getpeername()[:2]
    return f"{host}:{port}"
