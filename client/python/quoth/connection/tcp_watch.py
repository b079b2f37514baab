"""Ends a TCP connection to a host that does not acknowledge bytes any more.

The limit of the operating system, TCP_USER_TIMEOUT, does not distinguish a network that drops packets from a
broker that reads nothing for a while, whose host acknowledges that its window is closed. In the first case
the connection has to end soon: TCP doubles its pauses between attempts, so it would notice late that the
network is back. In the second case it has to be kept: all requests in flight would be sent again. TCP_INFO,
the kernel's counters of a connection, distinguishes them. Systems other than Linux have the limit alone.
"""

from __future__ import annotations

import socket
import struct

INFO = struct.Struct("=2x2B4xI40x2I")
"""Of TCP_INFO: retransmissions and window probes since the last acknowledgement, microseconds of the present
pause between two attempts, milliseconds since bytes came, and since a packet with an acknowledgement, old or
new."""
_ATTEMPTS_LEAST = 2
"""A single one may be in flight now, or be lost as packets are."""
_ABORT = struct.pack("ii", 1, 0)
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_TCP_INFO = getattr(socket, "TCP_INFO", None)


def end_if_dead(descriptor: int, url: str, seconds: float, *, neglected: bool) -> bool:
    """End a connection if the other host acknowledges nothing; libzmq makes another. True if it was ended.

    descriptor: the socket, from a monitor's event. url: its peer; only tcp is checked. seconds: how long
    bytes may stay without an acknowledgement; neglected: the same limit holds for the time without any
    received byte, not even the answer to a heartbeat.
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
        # What it has queued is not sent: the next connection sends all of it again.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        connection.detach()
    return True


def _is_dead(connection: socket.socket, port: int, seconds: float, neglected: bool) -> bool:
    if connection.family not in _FAMILIES or connection.getpeername()[1] != port:
        return False  # libzmq has closed it, and its number belongs to another file by now
    assert _TCP_INFO is not None
    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, INFO.size)
    return max(unacknowledged(info), unheard(info) if neglected else 0.0) > seconds


def unacknowledged(info: bytes) -> float:
    """Return the seconds for which bytes have not been acknowledged, 0.0 if that may change at once.

    Any packet ends the silence, also one that the other host sends again. Then the pause shows it, which has
    doubled with each attempt: the pauses so far are together almost as long as the present one.
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
