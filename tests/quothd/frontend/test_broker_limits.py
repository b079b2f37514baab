"""Requests above a limit, and the error codes of PROTOCOL.md."""

from __future__ import annotations

import re

import msgpack
import pytest

from kit.broker.frames import header, packed, refusal_of
from kit.broker.peers import FastPeer, SimplePeer
from kit.broker.requests import PROTOCOL
from quothwire.batch import encode
from quothwire.protocol.messages import Operation

LONG_HEADERS = encode([b"x"], headers=[msgpack.packb({"n": bytes(65_530)})])
"""A batch with a record whose headers are one byte longer than they may be."""
ABOVE_A_LIMIT = {
    "headers of a record": [header(Operation.PUBLISH), b"t", b"\x80", LONG_HEADERS],
    "a topic's name": [header(Operation.DESCRIBE), b"t" * 201, b"\x80"],
    "arguments of a request": [header(Operation.FETCH), b"t", packed(after=1, x="y" * 8_192)],
    "frames before the empty one": [],
    "`limit` of a list": [header(Operation.LIST), b"", packed(limit=1_001)],
}


@pytest.mark.parametrize("limit", ABOVE_A_LIMIT)
def test_a_request_above_a_limit_has_the_documented_code(
    fast: FastPeer, simple: SimplePeer, limit: str
) -> None:
    (row,) = [line for line in PROTOCOL.read_text().splitlines() if line.startswith(f"| {limit} |")]
    named = re.search(r"`(bad_\w+)`", row)
    code = named[1] if named else "too_large"
    frames = ABOVE_A_LIMIT[limit]
    if frames:
        assert refusal_of(fast, *frames) == (code, 77)
    else:
        simple.send_frames([*[b"x"] * 9, b"", b"ping"])
        assert simple.receive_frames()[2] == code.encode()
    if limit == "a topic's name":
        assert simple.ask("read", b"t" * 201, 0, 1, 0)[:2] == [b"error", code.encode()]
