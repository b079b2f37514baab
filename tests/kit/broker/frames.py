"""Frames of the fast protocol that no client would send, and the error that comes back."""

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
    """A header of the fast protocol, right or wrong."""
    return struct.pack("<2sBBB3sQ", magic, version, operation, status, zeros, correlation)


class Refusal(NamedTuple):
    """An error as it lies in its frames; `codec.decode_answer` would refuse one to an unknown operation."""

    code: str
    correlation: int


def refusal_of(fast: FastPeer, *frames: bytes) -> Refusal:
    """Send frames behind the delimiter; returns the error that comes, code empty if it is none."""
    fast.send_frames([b"", *frames])
    _, head, arguments, *_ = fast.receive_frames()
    magic, version, _, status, zeros, correlation = struct.unpack("<2sBBB3sQ", head)
    assert (magic, version, zeros) == (binary_codec.MAGIC, binary_codec.VERSION, bytes(3))
    return Refusal(msgpack.unpackb(arguments)["code"] if status == 2 else "", correlation)


def packed(**arguments: Any) -> bytes:
    """Arguments as msgpack."""
    return bytes(msgpack.packb(arguments))
