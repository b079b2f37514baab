"""Reads what libzmq reports of the connections of a socket that is bound."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from typing import NamedTuple

import zmq

from quothd.connections.router import receive_messages

_EVENT = struct.Struct("=Hi")
"""The first frame of a report. pyzmq's own decoder imports asyncio, and is ten times slower."""
_NO_USERS: dict[bytes, bytes | int] = {}
REPORTED = (
    zmq.EVENT_LISTENING
    | zmq.EVENT_ACCEPTED
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

    def events(self, enough: int) -> Iterator[MonitorEvent]:
        """Yield the reports that have come; with `enough` of them, some may be left."""
        taken, is_all = 0, False
        while taken < enough and not is_all:
            reports, _, is_all = receive_messages(self.socket, _NO_USERS)
            taken += len(reports)
            for event, _endpoint in reports:
                yield MonitorEvent(*_EVENT.unpack(event))

    def close(self) -> None:
        """End the reports. Before the watched socket is closed."""
        self._watched.disable_monitor()
        self.socket.close(linger=0)
