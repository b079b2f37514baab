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

INFO = struct.Struct("=2x2B4xI40x2I")
"""Of TCP_INFO: retransmissions and window probes since the last acknowledgement, microseconds of the present
pause between two attempts, milliseconds since bytes came, and since a packet came that acknowledges anything,
old or new."""
_ATTEMPTS_LEAST = 2
"""A single one may be on its way now, or be lost as packets are."""
_ABORT = struct.pack("ii", 1, 0)
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_TCP_INFO = getattr(socket, "TCP_INFO", None)


def end_if_dead(descriptor: int, url: str, seconds: float, *, neglected: bool) -> bool:
    """End a connection if the other host acknowledges nothing; libzmq makes another. True if it was.

    descriptor: the socket, as a monitor told it. url: where it is connected to; other ones than tcp are left
    alone. seconds: how long bytes may go unacknowledged; neglected: or how long none may come, not even the
    answer to a heartbeat.
    """
    scheme, _, address = url.partition("://")
    port = address.rpartition(":")[2]
    if scheme != "tcp" or not (port.isascii() and port.isdigit()) or _TCP_INFO is None:
        return False
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:  # libzmq has closed it just now
        return False
    try:
        if not _is_dead(connection, int(port), seconds, neglected):
            return False
        # Nothing that it has queued is sent: all of that is sent again on the next connection.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        connection.detach()
    return True


def _is_dead(connection: socket.socket, port: int, seconds: float, neglected: bool) -> bool:
    if connection.family not in _FAMILIES or connection.getpeername()[1] != port:
        return False  # libzmq has closed it, and its number is that of another file by now
    assert _TCP_INFO is not None
    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, INFO.size)
    return max(unacknowledged(info), unheard(info) if neglected else 0.0) > seconds


def unacknowledged(info: bytes) -> float:
    """Return the seconds for which bytes have not been acknowledged, 0.0 if that may change at once.

    Anything that arrives ends the silence, also what the other host sends again. Then the pause tells, which
    has doubled with each attempt: together, the pauses so far are all but as long as the present one.
    """
    numbers: tuple[int, ...] = INFO.unpack(info)
    retransmits, probes, pause_us, _, silent_ms = numbers
    if max(retransmits, probes) < _ATTEMPTS_LEAST:
        return 0.0
    return max(silent_ms / 1e3, pause_us / 1e6 * (1 - 0.5**retransmits))


def unheard(info: bytes) -> float:
    """Return the seconds for which no byte has come."""
    numbers: tuple[int, ...] = INFO.unpack(info)
    return numbers[3] / 1e3
