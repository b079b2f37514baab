"""A client of Poe: one connection, requests as bytes or as calls. It shares no code with the gateway."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S

ANY_PORT = "tcp://127.0.0.1:0"

QUIET_S = 0.1
"""In which a connection that is to stay quiet gets no byte."""


def poe_url(broker: BrokerProcess) -> str:
    """Return the address for clients of Poe that a broker has logged."""
    return broker.wait_for("Poe's protocol on ").rpartition(" ")[2]


def put_frame(topic: bytes, values: Iterable[bytes]) -> bytes:
    body = b"".join([struct.pack(">I", len(topic)), topic, *(struct.pack(">I", len(v)) + v for v in values)])
    return struct.pack(">IH", 2 + len(body), 2) + body


def read_frame(topic: bytes, after: int, limit: int) -> bytes:
    body = after.to_bytes(7, "big") + struct.pack(">I", limit) + topic
    return struct.pack(">IH", 2 + len(body), 0) + body


class PoePeer:
    """One connection to the port of a gateway. url: tcp://HOST:PORT. buffer: bytes of the receive buffer."""

    def __init__(self, url: str, buffer: int = 0) -> None:
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Send pieces until all are sent, or the other end has closed the connection."""
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except OSError:
            return

    def send_some(self, data: bytes) -> None:
        """Send what fits into the buffers now. For a socket that does not block."""
        with suppress(BlockingIOError):
            for begin in range(0, len(data), 2**16):
                self.socket.send(data[begin : begin + 2**16])

    def drain(self) -> int:
        """Receive until the connection ends; returns the number of bytes."""
        count = 0
        while part := self._receive(2**20):
            count += len(part)
        return count

    def end(self) -> None:
        """Send the end. Answers still come."""
        self.socket.shutdown(socket.SHUT_WR)

    def receive(self, size: int) -> bytes:
        """Return so many bytes, fewer if the connection ends before."""
        received = bytearray()
        while len(received) < size and (part := self._receive(size - len(received))):
            received += part
        return bytes(received)

    def frame(self) -> tuple[int, bytes]:
        """Return the type and the body of the next frame."""
        length, kind = struct.unpack(">IH", self.receive(6))
        return kind, self.receive(length - 2)

    def put(self, topic: str, *values: bytes) -> int:
        """Store values; returns the pointer of the last one."""
        self.send(put_frame(topic.encode(), values))
        return self.stored()

    def stored(self) -> int:
        """Return the pointer in the answer to a put."""
        kind, body = self.frame()
        assert (kind, len(body)) == (3, 7)
        return int.from_bytes(body, "big")

    def read(self, topic: str, after: int = 0, limit: int = 1_000) -> list[tuple[int, bytes]]:
        """Return records with their pointers."""
        self.send(read_frame(topic.encode(), after, limit))
        return self.records()

    def records(self) -> list[tuple[int, bytes]]:
        """Return the records in the answer to a read."""
        kind, body = self.frame()
        assert kind == 1
        found, begin = [], 0
        while begin < len(body):
            end = begin + 4 + struct.unpack_from(">I", body, begin)[0]
            assert begin + 11 <= end <= len(body)
            found.append((int.from_bytes(body[begin + 4 : begin + 11], "big"), body[begin + 11 : end]))
            begin = end
        return found

    def is_quiet(self, seconds: float = QUIET_S) -> bool:
        """True if nothing comes for so long, neither a byte nor the end."""
        return not select.select([self.socket], [], [], seconds)[0]

    def is_closed(self) -> bool:
        """Wait for the end; false if a byte comes in front of it."""
        return self._receive(1) == b""

    def _receive(self, size: int) -> bytes:
        try:
            return self.socket.recv(size)
        except ConnectionResetError:
            return b""
