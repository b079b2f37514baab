"""Records of a decoded batch: all that was put in, and headers that matter only to those who look at them."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from quothwire import batch
from quothwire.batch import Batch
from quothwire.headers import encode_headers
from quothwire.record import Record, closed_records_of, records_of

RecordsOf = Callable[..., list[Record]]

ways = pytest.mark.parametrize("way", [records_of, closed_records_of])


def stored(headers: list[bytes] | None, keys: list[bytes | None] | None = None) -> Batch:
    """Three records at the pointers 5, 6 and 7."""
    raw = batch.encode([b"a", b"b", b"c"], keys, headers)
    header = batch.parse_header(raw, 0)._replace(base=5)
    return batch.decode(batch.stamp(header, 1) + raw[batch.HEADER_BYTES :], 1)


@ways
def test_records_have_what_was_put_in(way: RecordsOf) -> None:
    found = way(stored([encode_headers({"n": b"v"}), b"", encode_headers({})], [None, b"k", b""]))
    assert found == [
        Record(5, b"a", None, {"n": b"v"}),
        Record(6, b"b", b"k", {}),
        Record(7, b"c", b"", {}),
    ]
    assert dict(found[0].headers) == {"n": b"v"}
    assert found[0].headers["n"] == b"v"
    assert way(stored(None))[0] == Record(5, b"a", None, {})


@ways
@pytest.mark.parametrize("after", [0, 4, 5, 6, 7, 100])
def test_records_begin_behind_a_cursor(way: RecordsOf, after: int) -> None:
    assert [one.pointer for one in way(stored(None), after)] == [p for p in (5, 6, 7) if p > after]


@ways
def test_headers_that_cannot_be_decoded_are_empty_with_their_bytes_and_the_reason(way: RecordsOf) -> None:
    records = way(stored([encode_headers({"n": b"v"}), b"\x81\xa1n\xa1v", b""]))
    assert [(one.pointer, one.value) for one in records] == [(5, b"a"), (6, b"b"), (7, b"c")]
    assert [dict(one.headers) for one in records] == [{"n": b"v"}, {}, {}]
    assert [one.raw_headers for one in records] == [b"", b"\x81\xa1n\xa1v", b""]
    assert [bool(one.headers_problem) for one in records] == [False, True, False]
    assert "the value of 'n' is text, not binary" in records[1].headers_problem
    assert "xa1v" in repr(records[1].headers)
    assert pickle.loads(pickle.dumps(records[1])).raw_headers == records[1].raw_headers
