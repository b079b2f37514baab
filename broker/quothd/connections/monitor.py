"""Reads what libzmq reports of the connections of a socket that is bound."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from typing import NamedTuple

import zmq

_EVENT = struct.Struct("=Hi")
"""The first frame of a report. pyzmq's own decoder imports asyncio, and is ten times slower."""
REPORTED = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_ACCEPT_FAILED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)


class MonitorEvent(NamedTuple):
    """A report. event: a number of libzmq's. value: the descriptor, or the reason of a failed handshake."""

    event: int
    value: int


class Monitor:
    """The reports of one socket. Belongs to the thread that reads them.

    They are queued without a limit, since libzmq would wait for room; the reader has to keep up.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], watched: zmq.Socket[bytes]) -> None:
        address = f"inproc://quoth-monitor-{secrets.token_hex(8)}"
        watched.monitor(address, REPORTED)
        self._watched = watched
        self.socket: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self.socket.set(zmq.RCVHWM, 0)
        self.socket.set(zmq.LINGER, 0)
        self.socket.connect(address)

    def events(self, most: int) -> Iterator[MonitorEvent]:
        """Yield the reports that have come, no more of them than that."""
        for _ in range(most):
            try:
                number, value = _EVENT.unpack(self.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            self.socket.recv(zmq.NOBLOCK)  # the endpoint
            yield MonitorEvent(number, value)

    def close(self) -> None:
        """End the reports. Before the watched socket is closed."""
        self._watched.disable_monitor()
        self.socket.close(linger=0)
