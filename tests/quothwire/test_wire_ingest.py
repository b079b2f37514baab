"""Checks of a new batch: the validity of keys, and the numbering."""

from __future__ import annotations

import pytest

from kit.disk.logs import sealed
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import QuothError
from quothwire.headers import encode_headers
from quothwire.ingest import check_new

GOOD = encode_headers({"trace": b"0123456789"})


def problem_of(raw: bytes) -> str:
    """Return the error of a new batch, empty if it is accepted."""
    try:
        check_new(raw, batch.check(raw))
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
