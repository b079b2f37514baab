"""Requests are read from their frames, by the function in C as by the one in Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.disk.logs import encoded
from kit.forged import header
from kit.pure import needs_compiled, pure
from quothd.connections.connection import FRAME_BYTES, Frame, unwatched
from quothd.requests import pending_request
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import CreateTopic, Fetch, Operation, Ping, Publish

CONNECTION = unwatched()
PLAIN = [
    binary_codec.encode_request(Publish(), 7, "t", encoded([b"x"])),
    binary_codec.encode_request(Fetch(after=5), 2**64 - 1, "ö"),
    binary_codec.encode_request(CreateTopic(), 0, "t"),
    binary_codec.encode_request(Ping(), 1),
]
WRONG: list[list[Frame]] = [
    [],
    [b""],
    [b"Q"],
    [header(99), b"t"],
    [header(Operation.FETCH)],
    [header(Operation.FETCH), b"../x", b"\x80"],
    [header(Operation.FETCH), b"\xff", b"\x80"],
    [header(Operation.PING), b"t"],
    [header(Operation.FETCH), b"t", b"\x80", b"payload"],
    [header(Operation.PUBLISH)[:3], b"t", b"\x80", b"x"],
    [b"publish", b"t", b"x"],
    [b"fetch", b"t"],
    [b"", header(Operation.PING), b""],
    [memoryview(header(Operation.PING)), b""],
    [header(Operation.PING), memoryview(b"")],
]


def opened(module: ModuleType, frames: list[Frame]) -> Any:
    """Return what a request is read as, or the frames of its error."""
    try:
        request = module.open_request(frames, CONNECTION)
    except Exception as problem:
        return type(problem).__name__, vars(problem)
    assert request.connection is CONNECTION
    responder = request.responder
    parts = {name: getattr(responder, name) for name in responder.__slots__}
    return type(responder).__name__, parts, request.operation, request.topic, request.size, request.client


@cache
def python() -> ModuleType:
    """Return the module with the functions in Python."""
    return pure("quothd.requests.pending_request")


@needs_compiled
@pytest.mark.parametrize("body", [*PLAIN, *WRONG])
@pytest.mark.parametrize(
    "envelope", [[b"route", b""], [b"route"], [b"route", b"more", b""], [memoryview(b"route"), b""], []]
)
def test_a_request_is_read_in_c_as_in_python(envelope: list[Frame], body: list[Frame]) -> None:
    frames = [*envelope, *body]
    assert opened(pending_request, list(frames)) == opened(python(), list(frames))


@needs_compiled
@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([one for row in PLAIN for one in row]))))
def test_any_frames_are_read_in_c_as_in_python(frames: list[Frame]) -> None:
    assert opened(pending_request, list(frames)) == opened(python(), list(frames))


@pytest.mark.parametrize("plain", PLAIN)
def test_the_size_of_a_request_counts_its_frames_and_their_bytes(plain: list[bytes]) -> None:
    read: Callable[..., Any] = pending_request.open_request
    request = read([b"route", b"", *plain], CONNECTION)
    assert request.size == sum(map(len, plain)) + FRAME_BYTES * len(plain)
