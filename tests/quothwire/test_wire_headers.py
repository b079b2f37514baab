"""The headers of a record: one msgpack map of text to bytes, alone and in the column of a new batch."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import msgpack
import pytest

from kit.text.wording import code_of, error_of
from quothwire.errors import QuothError
from quothwire.headers import (
    CHUNK,
    FEW,
    HEADERS_BYTES_MAX,
    check_header_column,
    decode_headers,
    encode_headers,
)

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
GOOD = encode_headers({"trace": b"0123456789"})
NOT_WHOLE = "not one whole msgpack map"
INVALID: dict[str, tuple[bytes, str]] = {
    "nil": (b"\xc0", "nil, not a map"),
    "number": (b"\x05", "an integer, not a map"),
    "text": (b"\xa1a", "text, not a map"),
    "array": (b"\x90", "an array, not a map"),
    "text as value": (msgpack.packb({"a": "b"}), "the value of 'a' is text, not binary"),
    "number as value": (msgpack.packb({"a": 1}), "the value of 'a' is an integer, not binary"),
    "nil as value": (msgpack.packb({"a": None}), "the value of 'a' is nil, not binary"),
    "map as value": (msgpack.packb({"a": {}}), "the value of 'a' is a map, not binary"),
    "binary as name": (msgpack.packb({b"a": b"b"}), "a name that is binary, not text"),
    "number as name": (msgpack.packb({1: b"b"}), f"{NOT_WHOLE} of text to binary"),
    "name that is no UTF-8": (b"\x81\xa1\xff\xc4\x00", "text that is not UTF-8"),
    "byte that is never used": (b"\xc1", NOT_WHOLE),
    "extension": (b"\x81\xa1a\xd4\x05\x00", NOT_WHOLE),
    "time": (b"\x81\xa1a\xd6\xff\x00\x00\x00\x00", NOT_WHOLE),
    "cut": (GOOD[:-1], NOT_WHOLE),
    "a byte more": (GOOD + b"\x80", NOT_WHOLE),
    "two maps": (GOOD * 2, NOT_WHOLE),
    "above the limit": (msgpack.packb({"v": bytes(HEADERS_BYTES_MAX - 5)}), "65536 bytes, at most 65535"),
    "map32 of 4 Gi": (b"\xdf\xff\xff\xff\xff", NOT_WHOLE),
    "bin32 of 4 Gi": (b"\x81\xa1a\xc6\xff\xff\xff\xff", NOT_WHOLE),
    "str32 of 4 Gi": (b"\x81\xdb\xff\xff\xff\xff", NOT_WHOLE),
    "arrays in arrays": (b"\x91" * HEADERS_BYTES_MAX, NOT_WHOLE),
    "maps in maps": (b"\x81\xa1a" * 20_000, NOT_WHOLE),
    "large maps in large maps": (b"\xde\x70\x00\xa1a" * 1_000 + bytes(60_000), NOT_WHOLE),
}


@pytest.mark.parametrize("headers", VALID.values(), ids=VALID)
def test_headers_are_read_as_they_were_written(headers: dict[str, bytes]) -> None:
    encoded = encode_headers(headers)
    assert decode_headers(encoded) == headers
    assert len(encoded) <= HEADERS_BYTES_MAX


def test_empty_map_is_no_bytes_or_one() -> None:
    assert encode_headers({}) == b""
    assert decode_headers(b"\x80") == {}


def test_name_that_occurs_twice_has_its_last_value() -> None:
    assert decode_headers(b"\x82\xa1a\xc4\x011\xa1a\xc4\x012") == {"a": b"2"}


def columns_around(wrong: bytes, rng: random.Random) -> dict[str, list[bytes]]:
    """Return columns of headers that are checked in different ways, each with a wrong one in it."""
    values = [rng.randbytes(rng.randrange(9)) for _ in range(2 * CHUNK)]
    alike = [b"\x81\xa1n\xc4\x02%02d" % i for i in range(99)]
    return {
        "alone": [wrong],
        "among equal ones": [GOOD] * 30 + [wrong] + [GOOD] * 30,
        "among records without": [b""] * 30 + [wrong] + [b""] * 30,
        "among ones of one size": [*alike, wrong, *alike],
        "among many different ones": [*(encode_headers({"n": v}) for v in values), wrong, GOOD],
    }


def heap_of(rows: list[bytes]) -> tuple[bytes, list[int]]:
    return b"".join(rows), list(accumulate(map(len, rows), initial=0))


@pytest.mark.parametrize(("wrong", "reason"), INVALID.values(), ids=INVALID)
def test_invalid_headers_are_damaged_and_refused_in_a_new_batch(
    wrong: bytes, reason: str, rng: random.Random, peak_bytes: Callable[..., int]
) -> None:
    """The error of a batch names the record."""
    assert code_of(decode_headers, wrong) == "damaged"
    assert peak_bytes(decode_headers, wrong) < 2**20
    for way, rows in columns_around(wrong, rng).items():
        problem = error_of(check_header_column, *heap_of(rows))
        assert problem.code == "bad_batch"
        assert f"record {rows.index(wrong)} of {len(rows)}, counted from 0" in problem.text, way
        assert reason in problem.text, way


def _broken(rng: random.Random, encoded: bytes) -> bytes:
    """Return headers with one byte changed, added or removed."""
    place = rng.randrange(len(encoded) + 1)
    return encoded[:place] + rng.choice((b"", rng.randbytes(1))) + encoded[place + rng.randrange(2) :]


def test_bulk_check_accepts_exactly_the_headers_that_decode_one_by_one(rng: random.Random) -> None:
    """Sizes vary, and a boundary may be moved so that the heap as a whole decodes as before."""
    refused = 0
    for number in range(600):
        names = [rng.choice(("a", "kind", "é" * 9, "n" * 40)) for _ in range(rng.randrange(1, 3))]
        size = rng.choice((3, 3, 300))
        rows = [
            encode_headers(
                {name: rng.randbytes(size if number % 2 else rng.randrange(size)) for name in names}
            )
            for _ in range(rng.choice((1, FEW, FEW + 1, 30, 2 * CHUNK)))
        ]
        if number % 3 == 0:
            rows += [b""] * rng.randrange(3)
        if number % 4 < 2:
            row = rng.randrange(len(rows))
            rows[row] = _broken(rng, rows[row])
        heap, offsets = heap_of(rows)
        if number % 5 == 0:
            at = rng.randrange(len(offsets))
            offsets[at] = offsets[at - 1] if at and at < len(offsets) - 1 else offsets[at]
        cells = [heap[a:b] for a, b in pairwise(offsets)]
        wrong = [row for row, cell in enumerate(cells) if not _decodes(cell)]
        try:
            check_header_column(heap, offsets)
        except QuothError as problem:
            named = [int(re.findall(r"record (\d+) of", problem.text)[0])]
            refused += 1
        else:
            named = []
        assert set(named) <= set(wrong)
        assert bool(named) is bool(wrong)
    assert 100 < refused < 500, "both happen"


def _decodes(encoded: bytes) -> bool:
    try:
        decode_headers(encoded)
    except QuothError:
        return False
    return True


def test_empty_maps_are_compared_byte_by_byte() -> None:
    check_header_column(*heap_of([b"\x80"] * 20))
    assert "record 19" in error_of(check_header_column, *heap_of([b"\x80"] * 19 + [b"\xc1"])).text


def test_headers_that_cannot_be_encoded_are_refused() -> None:
    no_map: tuple[Any, ...] = (
        {"a": "text"},
        {"a": None},
        {"a": 1},
        {"a": bytearray(b"b")},
        {b"a": b"b"},
        {1: b"b"},
    )
    for headers in (*no_map, {"\ud800": b""}, [("a", b"b")]):
        assert code_of(encode_headers, headers) == "bad_request", headers
    for size in (HEADERS_BYTES_MAX - 5, 2**20):
        assert code_of(encode_headers, {"v": bytes(size)}) == "too_large"
