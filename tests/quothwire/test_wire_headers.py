"""The headers of a record: one msgpack map of text to bytes, of limited size."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from kit.text.wording import code_of
from quothwire.headers import HEADERS_BYTES_MAX, decode_headers, encode_headers

VALID: dict[str, dict[str, bytes]] = {
    "none": {},
    "one": {"trace": b"\x00\xff"},
    "empty name and value": {"": b""},
    "not ASCII": {"é€\U0001f4e8": b"1", "a\0b": b"2"},
    "twenty": {f"name {i}": bytes([i]) * i for i in range(20)},
    "a value of 300 bytes": {"v": bytes(300)},
    "a name of 300 bytes": {"n" * 300: b""},
    "as many bytes as can be": {"v": bytes(HEADERS_BYTES_MAX - 6)},
}
INVALID: dict[str, bytes] = {
    "nil": b"\xc0",
    "number": b"\x05",
    "text": b"\xa1a",
    "array": b"\x90",
    "array of pairs": msgpack.packb([["a", b"b"]]),
    "text as value": msgpack.packb({"a": "b"}),
    "number as value": msgpack.packb({"a": 1}),
    "nil as value": msgpack.packb({"a": None}),
    "map as value": msgpack.packb({"a": {}}),
    "bytes as name": msgpack.packb({b"a": b"b"}),
    "number as name": msgpack.packb({1: b"b"}),
    "nil as name": msgpack.packb({None: b"b"}),
    "name that is no UTF-8": b"\x81\xa1\xff\xc4\x00",
    "unused byte": b"\xc1",
    "extension": b"\x81\xa1a\xd4\x05\x00",
    "empty extension": b"\x81\xa1a\xc7\x00\x05",
    "time": b"\x81\xa1a\xd6\xff\x00\x00\x00\x00",
    "cut": b"\x81\xa1a\xc4\x05abc",
    "followed by more": msgpack.packb({"a": b"b"}) + b"\x80",
    "one byte above the limit": msgpack.packb({"v": bytes(HEADERS_BYTES_MAX - 5)}),
    "whole up to the limit, and more": msgpack.packb({"v": bytes(HEADERS_BYTES_MAX - 6)}) + b"x",
    "map32 of 4 Gi": b"\xdf\xff\xff\xff\xff",
    "array32 of 4 Gi": b"\xdd\xff\xff\xff\xff",
    "bin32 of 4 Gi": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "str32 of 4 Gi": b"\x81\xdb\xff\xff\xff\xff",
    "ext32 of 4 Gi": b"\x81\xa1a\xc9\xff\xff\xff\xff\x05",
    "arrays in arrays": b"\x91" * HEADERS_BYTES_MAX,
    "maps in maps": b"\x81\xa1a" * 20_000,
    "large arrays in large arrays": b"\xdc\xf0\x00" * 1_000 + bytes(62_000),
    "large maps in large maps": b"\xde\x70\x00\xa1a" * 1_000 + bytes(60_000),
}
NOT_ENCODABLE: list[tuple[Any, str]] = [
    ({"a": "text"}, "bad_request"),
    ({"a": None}, "bad_request"),
    ({"a": 1}, "bad_request"),
    ({"a": bytearray(b"b")}, "bad_request"),
    ({b"a": b"b"}, "bad_request"),
    ({1: b"b"}, "bad_request"),
    ({"\ud800": b""}, "bad_request"),
    ([("a", b"b")], "bad_request"),
    ({"v": bytes(HEADERS_BYTES_MAX - 5)}, "too_large"),
    ({"v": bytes(2**20)}, "too_large"),
]


@pytest.mark.parametrize("headers", VALID.values(), ids=VALID)
def test_headers_are_read_as_they_were_written(headers: dict[str, bytes]) -> None:
    encoded = encode_headers(headers)
    assert decode_headers(encoded) == headers
    assert len(encoded) <= HEADERS_BYTES_MAX


def test_random_headers_are_read_as_they_were_written(rng: random.Random) -> None:
    for _ in range(200):
        headers = {f"{rng.random()}": rng.randbytes(rng.randrange(100)) for _ in range(rng.randrange(30))}
        assert decode_headers(encode_headers(headers)) == headers


def test_empty_map_is_no_bytes_or_one() -> None:
    assert encode_headers({}) == b""
    assert decode_headers(b"\x80") == {}


def test_name_that_occurs_twice_has_its_last_value() -> None:
    assert decode_headers(b"\x82\xa1a\xc4\x011\xa1a\xc4\x012") == {"a": b"2"}


@pytest.mark.parametrize("encoded", INVALID.values(), ids=INVALID)
def test_invalid_headers_are_damaged_and_take_little_memory(
    encoded: bytes, peak_bytes: Callable[..., int]
) -> None:
    assert code_of(decode_headers, encoded) == "damaged"
    assert peak_bytes(decode_headers, encoded) < 2**20


@pytest.mark.parametrize(("headers", "code"), NOT_ENCODABLE, ids=lambda value: ascii(value)[:40])
def test_headers_that_cannot_be_encoded_are_refused(headers: Any, code: str) -> None:
    assert code_of(encode_headers, headers) == code
