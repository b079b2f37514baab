"""Reads the kernel's counters of a connection, and ends one, by the descriptor of libzmq's socket.

libzmq closes its descriptors by itself, and the system gives their numbers out again. So each call compares
the cookie of the socket with the one that it had when it was accepted.

Most calls of Python's for sockets release the interpreter, and wait for other threads to get it back.
`getsockopt` does not, so that counters of thousands of connections are read in milliseconds.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from quothwire.native import compiled

_INFO = struct.Struct("=120x2Q")
"""Of TCP_INFO: bytes that the peer has acknowledged, and bytes that came from it."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_ESTABLISHED = b"\1"
"""Of TCP_INFO: the state of a connection that both sides keep open."""
_TCP = (int(socket.AF_INET), int(socket.AF_INET6))
_Borrowed = socket.SocketType
"""The base of `socket.socket`, without its enumerations: they take half of the time."""
_SO_COOKIE = 57
"""Of Linux from 4.12 on, for all but two rare kinds of machines. Elsewhere the peer stands for the cookie."""
_COOKIE_BYTES = 8


class Counters(NamedTuple):
    """Bytes since the connection began: acknowledged by the peer, received; -1 where they are not counted.

    unread: bytes in the kernel that the peer has not acknowledged or, on this machine, not read.
    """

    acknowledged: int
    received: int
    unread: int


class AcceptedSocket(NamedTuple):
    """A socket that libzmq has accepted. descriptor: -1 for none, as a client in this process has.

    peer: its address and port, empty for ipc. cookie: what no other socket of the system has.
    """

    descriptor: int = -1
    family: int = -1
    peer: str = ""
    cookie: bytes = b""

    def counters(self) -> Counters | None:
        """Return its counters; None if it is closed."""
        if (counted := self.tcp_counters()) is not None:
            return counted
        with suppress(OSError), _borrowed(self.descriptor, self.cookie):
            return Counters(-1, -1, _unread(self.descriptor))
        return None

    def tcp_counters(self) -> Counters | None:
        """Return its counters; None if they are not counted, or the socket is closed."""
        if self.family not in _TCP or _TCP_INFO is None:
            return None
        counted = counted_bytes(self.descriptor, self.cookie)
        return Counters(*counted) if counted is not None else None

    def received(self) -> int | None:
        """Return the bytes that have come; None if they are not counted, or the socket is closed."""
        counted = self.tcp_counters()
        return counted.received if counted is not None else None

    def is_closed(self) -> bool:
        """Return True if the peer of a TCP connection has closed it. False where the system does not tell."""
        if self.family in _TCP and _TCP_INFO is not None:
            with suppress(OSError), _borrowed(self.descriptor, self.cookie) as connection:
                return connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1) != _ESTABLISHED
        return False

    def end(self) -> bool:
        """End the connection; libzmq finds out and closes it. False if it has ended."""
        with suppress(OSError), _borrowed(self.descriptor, self.cookie) as connection:
            connection.shutdown(socket.SHUT_RDWR)
            return True
        return False


@compiled("quothd._native.kernel")
def counted_bytes(descriptor: int, cookie: bytes) -> tuple[int, int, int] | None:
    """Return the counters of a TCP connection, in the order of `Counters`.

    None if it is closed, or its descriptor belongs to something else by now.
    """
    with suppress(OSError), _borrowed(descriptor, cookie) as connection:
        info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO or 0, _INFO.size)
        acknowledged, received = _INFO.unpack(info)
        return acknowledged, received, _unread(descriptor)
    return None


def _unread(descriptor: int) -> int:
    unread = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.TIOCOUTQ, unread)
    return unread[0]


@contextmanager
def _borrowed(descriptor: int, cookie: bytes) -> Iterator[_Borrowed]:
    """Use a descriptor as a socket. Raises OSError if it belongs to something else by now."""
    if descriptor < 0:
        raise OSError(errno.EBADF, "no socket")
    connection = _Borrowed(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        if _cookie_of(connection) != cookie:
            raise OSError(errno.EBADF, "another connection has this descriptor")
        yield connection
    finally:
        connection.detach()


IN_PROCESS = AcceptedSocket()
"""The socket of a client in this process, which has none."""


def accepted_socket(descriptor: int) -> AcceptedSocket:
    """Return the socket of a descriptor. Raises OSError if it is closed, and perhaps another one's by now."""
    cookie, peer = _cookie_at(descriptor), ""
    connection = _Borrowed(fileno=descriptor)
    try:
        if connection.family in _TCP:
            name = connection.getpeername()
            peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""
        if _cookie_at(descriptor) != cookie or (connection.family in _TCP and not peer):
            raise OSError(errno.EBADF, "another connection has this descriptor")
        return AcceptedSocket(descriptor, connection.family, peer, cookie)
    finally:
        connection.detach()


def _cookie_at(descriptor: int) -> bytes:
    """Return the cookie of a socket of any family."""
    connection = _Borrowed(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        return _cookie_of(connection)
    finally:
        connection.detach()


def _cookie_of(connection: _Borrowed) -> bytes:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, _COOKIE_BYTES)
    except OSError:
        return repr(connection.getpeername()).encode()
