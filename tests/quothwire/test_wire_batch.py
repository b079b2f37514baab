"""Batches: records are read as they were written; columns lie as in Arrow; limits hold exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kit.disk.logs import stamped
from kit.text.wording import code_of
from quothwire import batch
from quothwire.batch import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    HEADER_BYTES,
    Flag,
    check,
    decode,
    encode,
    parse_header,
    split,
)
from quothwire.headers import encode_headers

LOG = 0x0123_4567_89AB_CDEF
OTHER_LOG = 0xFEDC_BA98_7654_3210
BASE = 1_767_323_045_000_001
U64 = 2**64 - 1


@dataclass
class Records:
    """The columns of a batch."""

    values: list[bytes]
    keys: list[bytes | None] | None = None
    headers: list[bytes] | None = None


TRACE = encode_headers({"trace": b"\x01"})
CASES = {
    "one": Records([b"value"]),
    "one empty": Records([b""]),
    "some empty": Records([b"", b"a", b"", b"", b"bc", b""]),
    "zero bytes": Records([bytes(17), bytes(3)]),
    "one of 100,000 bytes": Records([b"x" * 100_000]),
    "key null": Records([b"v"], [None]),
    "key null, empty, present": Records([b"1", b"2", b"3"], [None, b"", b"k"]),
    "all keys null": Records([b"v"] * 70, [None] * 70),
    "all keys empty": Records([b"v"] * 70, [b""] * 70),
    "every third key over many words of the bitmap": Records(
        [b"v"] * 200, [None if i % 3 else b"%d" % i for i in range(200)]
    ),
    "headers": Records([b"1", b"2"], None, [TRACE, b""]),
    "all headers empty": Records([b"1", b"2"], None, [b"", b""]),
    "keys and headers": Records([b"1", b"", b"3"], [b"k", None, b""], [b"", TRACE, TRACE]),
    "a batch as value": Records([encode([b"inner"]), b"x"]),
}

every_case = pytest.mark.parametrize("records", CASES.values(), ids=CASES)


def encoded(records: Records, **options: Any) -> bytes:
    return encode(records.values, records.keys, records.headers, **options)


def stored(whole: bytes, log_id: int = LOG, base: int = BASE, ordinal: int = 5) -> bytes:
    """Return the batch as a log stores it."""
    return stamped(whole, log_id, base, ordinal)


def columns(decoded: batch.DecodedBatch) -> Records:
    return Records(decoded.values, decoded.keys, decoded.headers)


@every_case
def test_batch_is_read_as_it_was_written_and_its_header_describes_it(records: Records) -> None:
    for kind in (bytes, bytearray, memoryview):
        assert columns(decode(kind(encoded(records)))) == records
        assert columns(decode(kind(stored(encoded(records))), LOG)) == records
    whole = encoded(records, producer=U64, sequence=7, flags=Flag.SPARSE | Flag.START)
    header = check(whole)
    assert header == parse_header(whole, 0) == parse_header(b"before" + whole + b"behind", 0, 6)
    assert header.kind == batch.DATA
    assert header.size == len(whole)
    assert header.size % 8 == 0
    assert (header.base, header.ordinal) == (0, 0), "only a log gives pointers"
    assert (header.producer, header.sequence) == (U64, 7)
    present = (records.keys is not None) * Flag.KEYS | (records.headers is not None) * Flag.HEADERS
    assert header.flags == present | Flag.SPARSE | Flag.START


def test_pointers_and_ordinals_follow_from_the_header() -> None:
    header = parse_header(stored(encode([b"1", b"2", b"3"]), base=100, ordinal=40), LOG)
    assert (header.base, header.last) == (100, 102)
    assert (header.ordinal, header.end_ordinal) == (40, 43)


def test_batch_of_another_log_is_refused() -> None:
    whole = stored(encode([b"v"]))
    for reader in (0, OTHER_LOG, LOG ^ 1, U64):
        for read in (parse_header, check, decode, split):
            assert code_of(read, whole, reader) == "bad_batch"
    assert code_of(check, encode([b"v"]), LOG) == "bad_batch", "no log has stamped it"


def test_batch_inside_a_value_is_no_batch_of_the_log() -> None:
    inner = encode([b"inner"], producer=9, sequence=9)
    copied = stored(inner, OTHER_LOG)
    whole = stored(encode([b"before", inner, copied, b"behind"]))
    places = [place for place in range(len(whole)) if whole.startswith(batch.MAGIC, place)]
    assert len(places) == 3
    assert parse_header(whole, 0, places[1]).producer == 9, "it is a valid batch that no log has stamped"
    for place in places[1:]:
        assert code_of(parse_header, whole, LOG, place) == "bad_batch"
    assert [bytes(part) for part in split(whole, LOG)] == [whole]


def test_row_of_stored_batches_is_cut_by_headers() -> None:
    wholes = [stored(encoded(records), ordinal=i) for i, records in enumerate(CASES.values())]
    for kind in (bytes, bytearray, memoryview):
        assert [bytes(part) for part in split(kind(b"".join(wholes)), LOG)] == wholes
    assert split(b"", LOG) == []
    for tail in (b"\0", bytes(64), b"QUOB", encode([b"unstamped"])):
        assert code_of(split, wholes[0] + tail, LOG) == "bad_batch"


def test_records_that_make_no_batch_are_refused() -> None:
    one, two = [b"1"], [b"1", b"2"]
    for records in (
        Records([]),
        Records([], []),
        Records(two, [b"k"]),
        Records(one, [b"k", None]),
        Records(one, []),
        Records(two, None, [TRACE]),
        Records(one, [b"k"], []),
    ):
        assert code_of(encoded, records) == "bad_batch", records


def test_records_are_accepted_up_to_the_limit() -> None:
    values = [b""] * BATCH_RECORDS_MAX
    assert check(encode(values, [None] * BATCH_RECORDS_MAX)).records == BATCH_RECORDS_MAX
    assert decode(encode(values)).values == values
    assert code_of(encode, [*values, b""]) == "too_large"


def test_bytes_of_any_column_are_accepted_up_to_the_limit() -> None:
    room = BATCH_BYTES_MAX - HEADER_BYTES - 3 * 8 - 8  # three columns of two offsets, one word of the bitmap
    for column in range(3):
        for count, is_valid in ((room, True), (room + 1, False)):
            cells = [bytes(count) if one == column else b"" for one in range(3)]
            records = Records([cells[0]], [cells[1]], [cells[2]])
            if is_valid:
                whole = encoded(records)
                assert len(whole) == BATCH_BYTES_MAX
                assert columns(decode(whole)) == records
            else:
                assert code_of(encoded, records) == "too_large"


def test_batch_that_is_too_large_is_refused_before_it_takes_memory(peak_bytes: Callable[..., int]) -> None:
    big = bytes(BATCH_BYTES_MAX)
    for count in (1, 2, 127, 129, 1_000):  # from 128 on the offsets are beyond 31 bits
        assert code_of(encode, [big] * count) == "too_large"
        assert peak_bytes(encode, [big] * count) < 2**17


def test_check_of_a_large_batch_makes_no_copy(peak_bytes: Callable[..., int]) -> None:
    whole = encode([bytes(8 * 2**20)])
    assert peak_bytes(check, whole) < 2**16
