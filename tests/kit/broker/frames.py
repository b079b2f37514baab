"""Frames of the fast protocol that no client sends, and the errors that answer them."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgpack

from kit.broker.peers import FastPeer
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Operation


def header(
    operation: int = Operation.PING,
    *,
    magic: bytes = binary_codec.MAGIC,
    version: int = binary_codec.VERSION,
    status: int = 0,
    zeros: bytes = bytes(3),
    correlation: int = 77,
) -> bytes:
    """Return a header of the fast protocol, right or wrong."""
    return struct.pack("<2sBBB3sQ", magic, version, operation, status, zeros, correlation)


class ErrorFrames(NamedTuple):
    """An error read from its frames, since `binary_codec.decode_answer` rejects unknown operations."""

    code: str
    correlation: int


def error_of(fast: FastPeer, *frames: bytes) -> ErrorFrames:
    """Send frames behind the delimiter; returns the error that answers them, code empty for a reply."""
    fast.send_frames([b"", *frames])
    _, head, arguments, *_ = fast.receive_frames()
    magic, version, _, status, zeros, correlation = struct.unpack("<2sBBB3sQ", head)
    assert (magic, version, zeros) == (binary_codec.MAGIC, binary_codec.VERSION, bytes(3))
    return ErrorFrames(msgpack.unpackb(arguments)["code"] if status == 2 else "", correlation)


def packed(**arguments: Any) -> bytes:
    return bytes(msgpack.packb(arguments))
