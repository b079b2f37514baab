"""Checks of a new batch: headers in bulk, the validity of keys, the numbering."""

from __future__ import annotations

import random
import re
from itertools import accumulate, pairwise

import msgpack
import pytest

from kit.disk.logs import sealed
from kit.text.wording import error_of
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import QuothError
from quothwire.headers import (
    CHUNK,
    FEW,
    HEADERS_BYTES_MAX,
    check_header_column,
    decode_headers,
    encode_headers,
)
from quothwire.ingest import check_new

GOOD = encode_headers({"trace": b"0123456789"})
WRONG: dict[str, tuple[bytes, str]] = {
    "text as value": (msgpack.packb({"a": "b"}), "the value of 'a' is text, not binary"),
    "number as value": (msgpack.packb({"a": 1}), "the value of 'a' is an integer, not binary"),
    "map as value": (msgpack.packb({"a": {}}), "the value of 'a' is a map, not binary"),
    "number as name": (msgpack.packb({1: b"b"}), "not one whole msgpack map of text to binary"),
    "binary as name": (msgpack.packb({b"a": b"b"}), "a name that is binary, not text"),
    "name that is no UTF-8": (b"\x81\xa1\xff\xc4\x00", "text that is not UTF-8"),
    "byte that is never used": (b"\xc1", "not one whole msgpack map"),
    "number": (b"\x05", "an integer, not a map"),
    "nil": (b"\xc0", "nil, not a map"),
    "text": (b"\xa1a", "text, not a map"),
    "array": (b"\x90", "an array, not a map"),
    "extension": (b"\x81\xa1a\xd4\x05\x00", "not one whole msgpack map"),
    "cut": (GOOD[:-1], "not one whole msgpack map"),
    "a byte more": (GOOD + b"\x80", "not one whole msgpack map"),
    "two maps": (GOOD * 2, "not one whole msgpack map"),
    "above the limit": (msgpack.packb({"v": bytes(HEADERS_BYTES_MAX - 5)}), "65536 bytes, at most 65535"),
    "maps in maps": (b"\x81\xa1a" * 20_000, "not one whole msgpack map"),
}


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


@pytest.mark.parametrize(("wrong", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_headers_are_refused_and_the_error_names_the_record(
    wrong: bytes, reason: str, rng: random.Random
) -> None:
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


def problem_of(raw: bytes) -> str:
    """Return the error of a new batch, empty if it is accepted."""
    try:
        check_new(batch.parse(raw))
    except QuothError as problem:
        return str(problem)
    return ""


def test_numbering_needs_flags_that_fit_together_and_a_producer() -> None:
    accepted = {
        (flags, producer)
        for flags in (
            0,
            Flag.START,
            *(one | start for one in (Flag.SPARSE, Flag.ORDINAL) for start in (0, Flag.START)),
        )
        for producer in (0, 7)
        if not problem_of(batch.encode([b"v"], producer=producer, sequence=producer, flags=flags))
    }
    numbered = {Flag.SPARSE, Flag.SPARSE | Flag.START, Flag.ORDINAL, Flag.ORDINAL | Flag.START}
    assert accepted == {(0, 0), (0, 7)} | {(flags, 7) for flags in numbered}


def with_bitmap(raw: bytes, records: int, bits: int) -> bytes:
    """Return the same batch with another validity of its keys."""
    header = batch.parse_header(raw, 0)
    body = bytearray(raw[batch.HEADER_BYTES :])
    end = batch.fixed_bytes(records, header.flags)
    size = (records + 63) // 64 * 8
    body[end - size : end] = bits.to_bytes(size, "little")
    return sealed(header, bytes(body))


@pytest.mark.parametrize("records", [1, 63, 64, 65, 200])
def test_null_key_with_bytes_and_bit_behind_the_records_are_refused(records: int) -> None:
    keys: list[bytes | None] = [None if row % 3 else b"k%d" % row for row in range(records)]
    bits = sum(1 << row for row, key in enumerate(keys) if key is not None)
    last = max(row for row, key in enumerate(keys) if key is not None)
    for headers in (None, [GOOD] * records):
        raw = batch.encode([b"v"] * records, keys, headers)
        assert problem_of(raw) == problem_of(with_bitmap(raw, records, bits)) == ""
        assert problem_of(with_bitmap(raw, records, (1 << records) - 1)) == "", "a key may be empty"
        problem = problem_of(with_bitmap(raw, records, bits ^ 1 << last))
        assert f"bad_batch: record {last} of {records}, counted from 0: no key, and" in problem
        if records % 64:
            for beyond in (records, (records + 63) // 64 * 64 - 1):
                problem = problem_of(with_bitmap(raw, records, bits | 1 << beyond))
                assert f"beyond the last of {records} records" in problem
