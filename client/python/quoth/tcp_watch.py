"""Ends a TCP connection to a host that does not acknowledge bytes any more.

The limit of the operating system, TCP_USER_TIMEOUT, makes no difference between a network that swallows
packets and a broker that reads nothing for a while, whose host acknowledges that its window is closed. A
connection of the first kind has to be given up soon: TCP doubles its pauses between attempts, so it would
notice late that the network is back. One of the second kind has to be kept: all that is on its way would be
sent again. TCP_INFO, what the kernel counts for each connection, tells them apart. Other systems than Linux
have the limit alone.
"""

from __future__ import annotations

import socket
import struct

import zmq

_INFO = struct.Struct("=2x2B4x48xI")
"""Retransmissions and window probes since the last acknowledgement; milliseconds since that."""
_ATTEMPTS_LEAST = 2
"""A single one may be on its way now, or be lost as packets are."""
_ABORT = struct.pack("ii", 1, 0)
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_TCP_INFO = getattr(socket, "TCP_INFO", None)


class TcpWatch:
    """Watches the connection of one zmq socket. Belongs to one thread.

    seconds: how long bytes may go unacknowledged.
    """

    def __init__(self, url: str, seconds: float) -> None:
        scheme, _, address = url.partition("://")
        port = address.rpartition(":")[2]
        self._port = int(port) if scheme == "tcp" and port.isascii() and port.isdigit() else 0
        self._ms = seconds * 1_000
        self._descriptor = -1

    def note(self, event: int, value: int) -> None:
        """Take in what a monitor tells of the connection."""
        if event == zmq.EVENT_CONNECTED:
            self._descriptor = value
        elif event == zmq.EVENT_DISCONNECTED:
            self._descriptor = -1

    def end_if_dead(self) -> bool:
        """End the connection if the other host acknowledges nothing; libzmq makes another. True if it was."""
        if self._descriptor < 0 or not self._port or _TCP_INFO is None:
            return False
        try:
            connection = socket.socket(fileno=self._descriptor)
        except OSError:  # libzmq has closed it just now
            return False
        try:
            return self._is_dead(connection) and self._end(connection)
        except OSError:
            return False
        finally:
            connection.detach()

    def _is_dead(self, connection: socket.socket) -> bool:
        if connection.family not in _FAMILIES or connection.getpeername()[1] != self._port:
            return False  # libzmq has closed it, and its number is that of another file by now
        assert _TCP_INFO is not None
        info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        retransmits, probes, silent_ms = _INFO.unpack(info)
        return bool(max(retransmits, probes) >= _ATTEMPTS_LEAST and silent_ms > self._ms)

    def _end(self, connection: socket.socket) -> bool:
        """End it without sending what it has queued: all of that is sent again on the next connection."""
        self._descriptor = -1
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        connection.shutdown(socket.SHUT_RDWR)
        return True
