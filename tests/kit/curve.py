"""The CURVE mechanism of ZMTP by hand: a client that sends any metadata. See https://rfc.zeromq.org/spec/26."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from kit import zmtp
from quothwire.security.key_file import Key

GREETING = zmtp.GREETING.replace(b"NULL\0", b"CURVE")
_MAC_BYTES = 16


class CurveConnection:
    """A TCP connection after a handshake with these metadata. Skips the test without libsodium."""

    def __init__(self, url: str, key: Key, metadata: bytes) -> None:
        self._sodium = ctypes.CDLL(_libsodium())
        self._number = 0
        self.socket = zmtp.raw_to(url)
        self.socket.sendall(GREETING)
        self._read(zmtp.GREETING_BYTES)
        self._shake_hands(key, metadata)

    def send(self, body: bytes) -> None:
        """Send a message of one frame."""
        box = self._box(b"\0" + body, self._nonce(b"CurveZMQMESSAGEC"), self._server, self._secret)
        self._send(b"\7MESSAGE" + struct.pack(">Q", self._number) + box, zmtp.LAST)

    def receive(self) -> bytes:
        """Return the next message, of one frame."""
        body = self._frame()
        assert body.startswith(b"\7MESSAGE")
        return self._opened(body[16:], b"CurveZMQMESSAGES" + body[8:16], self._server, self._secret)[1:]

    def close(self) -> None:
        self.socket.close()

    def _shake_hands(self, key: Key, metadata: bytes) -> None:
        server, public, secret = (z85.decode(one) for one in (key.server_keys[0], *key[1:3]))
        own, self._secret = (z85.decode(one) for one in zmq.curve_keypair())
        box = self._box(bytes(64), self._nonce(b"CurveZMQHELLO---"), server, self._secret)
        self._send(b"\5HELLO\1\0" + bytes(72) + own + struct.pack(">Q", self._number) + box)
        welcome = self._frame()
        assert welcome.startswith(b"\7WELCOME")
        opened = self._opened(welcome[24:], b"WELCOME-" + welcome[8:24], server, self._secret)
        self._server, cookie = opened[:32], opened[32:]
        vouch = self._box(own + server, b"VOUCH---" + bytes(16), self._server, secret)
        nonce = self._nonce(b"CurveZMQINITIATE")
        box = self._box(public + bytes(16) + vouch + metadata, nonce, self._server, self._secret)
        self._send(b"\x08INITIATE" + cookie + struct.pack(">Q", self._number) + box)
        assert self._frame().startswith(b"\5READY")

    def _nonce(self, prefix: bytes) -> bytes:
        self._number += 1
        return prefix + struct.pack(">Q", self._number)

    def _send(self, body: bytes, flag: int = zmtp.COMMAND) -> None:
        self.socket.sendall(zmtp.frame(body, flag))

    def _frame(self) -> bytes:
        """Read a frame; returns its body."""
        flag = self._read(1)[0]
        length = struct.unpack(">Q", self._read(8))[0] if flag & zmtp.LONG else self._read(1)[0]
        return self._read(length)

    def _read(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            part = self.socket.recv(count - len(received))
            assert part, "the broker has closed the connection"
            received += part
        return received

    def _box(self, text: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
        return self._call(self._sodium.crypto_box_easy, text, _MAC_BYTES, nonce, public, secret)

    def _opened(self, box: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
        return self._call(self._sodium.crypto_box_open_easy, box, -_MAC_BYTES, nonce, public, secret)

    @staticmethod
    def _call(function: Callable[..., int], text: bytes, more: int, *keys: bytes) -> bytes:
        result = ctypes.create_string_buffer(len(text) + more)
        assert function(result, text, ctypes.c_ulonglong(len(text)), *keys) == 0
        return result.raw


def _libsodium() -> str:
    """Return the library that pyzmq brings with it."""
    found = [*Path(zmq.__file__).parent.parent.glob("pyzmq.libs/libsodium*")]
    if not found:
        pytest.skip("this pyzmq brings no libsodium")
    return str(found[0])
