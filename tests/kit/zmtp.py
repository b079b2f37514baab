"""ZMTP 3 by hand, with the mechanism NULL: connections and bytes of a client without libzmq."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress

from kit.broker.peers import HasUrl
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Request

CLOSED_WITHIN_S = 15.0
"""More than the three seconds that the broker allows for a handshake."""
HANDSHAKE_S = 2.0
"""Less than the broker allows: one that takes longer may be ended because the machine is slow."""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
GREETING_BYTES = 64
LAST, MORE, LONG, COMMAND = 0, 1, 2, 4


def metadata(kind: bytes = b"DEALER", **properties: bytes) -> bytes:
    """Return the properties of a socket of a type, and more; "_" in a name stands for "-"."""
    pairs = {"Socket_Type": kind, **properties}.items()
    rows = ((name.replace("_", "-").encode(), value) for name, value in pairs)
    return b"".join(bytes([len(name)]) + name + struct.pack(">I", len(value)) + value for name, value in rows)


def ready(kind: bytes = b"DEALER", **properties: bytes) -> bytes:
    """Return the command READY of a socket of a type, see `metadata`."""
    return frame(b"\x05READY" + metadata(kind, **properties), COMMAND)


def opening(kind: bytes = b"DEALER", **properties: bytes) -> bytes:
    """Return greeting and READY. Messages have to wait for those of the other side."""
    return GREETING + ready(kind, **properties)


def frame(body: bytes, flag: int = LAST) -> bytes:
    """Return a frame. flag: MORE for all but the last one of a message."""
    if len(body) < 256:
        return bytes([flag, len(body)]) + body
    return bytes([flag | LONG]) + struct.pack(">Q", len(body)) + body


def message(frames: Iterable[bytes]) -> bytes:
    """Return the bytes of a message."""
    *first, last = frames
    return b"".join([*(frame(one, MORE) for one in first), frame(last)])


def request(what: Request, topic: str = "", payload: bytes | None = None) -> bytes:
    """Return the bytes of a request of the fast protocol. All have the same correlation id."""
    return message([b"", *binary_codec.encode_request(what, 1, topic, payload)])


def raw(broker: HasUrl) -> socket.socket:
    """Open a TCP connection."""
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


def reset(connection: socket.socket) -> None:
    """Close a connection with a reset, which throws unsent bytes away and leaves no port in use."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@contextmanager
def handshaken(broker: HasUrl, **properties: bytes) -> Iterator[socket.socket]:
    """Open a TCP connection and execute the handshake of ZeroMQ, with more properties.

    Raises ConnectionError if the broker ends it, and not because it took too long.
    """
    while True:
        began = time.monotonic()
        with closing(raw(broker)) as connection:
            try:
                shake_hands(connection, **properties)
            except ConnectionError:
                if time.monotonic() - began < HANDSHAKE_S:
                    raise
            else:
                yield connection
                return


def shake_hands(connection: socket.socket, **properties: bytes) -> None:
    """Execute the handshake. Raises ConnectionError if the other side ends the connection."""
    connection.sendall(opening(**properties))
    greeting = b""
    while len(greeting) < GREETING_BYTES + 2:
        part = connection.recv(4_096)
        if not part:
            raise ConnectionError("the connection was ended within the handshake")
        greeting += part
