"""Connections to a broker by hand: TCP, and ZeroMQ's protocol (ZMTP 3.1) as bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from kit.broker.peers import HasUrl

CLOSED_WITHIN_S = 15.0
"""More than the three seconds that the broker allows for a handshake."""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
_BODY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
READY = b"\x04" + bytes([len(_BODY)]) + _BODY


def raw(broker: HasUrl) -> socket.socket:
    return raw_to(broker.url)


def raw_to(url: str) -> socket.socket:
    host, port = url.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=CLOSED_WITHIN_S)


def read_to_end(connection: socket.socket) -> bytes:
    """Return what comes until the broker closes the connection. Raises TimeoutError if it does not."""
    received = b""
    with suppress(ConnectionError):
        while part := connection.recv(65_536):
            received += part
    return received


@contextmanager
def handshaken(broker: HasUrl) -> Iterator[socket.socket]:
    """Open a TCP connection and execute the handshake of ZeroMQ by hand."""
    with closing(raw(broker)) as connection:
        connection.sendall(GREETING + READY)
        greeting = b""
        while len(greeting) < 64 + 2:
            greeting += connection.recv(4_096)
        yield connection
