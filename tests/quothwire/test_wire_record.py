"""Records of a decoded batch, and their headers, which are decoded at the first access."""

from __future__ import annotations

import pickle

import pytest

from kit.disk.logs import stamped
from quothwire import batch
from quothwire.batch import DecodedBatch
from quothwire.headers import encode_headers
from quothwire.record import Record, records_of


def stored(headers: list[bytes] | None, keys: list[bytes | None] | None = None) -> DecodedBatch:
    """Return three records with the pointers 5, 6 and 7."""
    return batch.decode(stamped(batch.encode([b"a", b"b", b"c"], keys, headers), 1, 5), 1)


def test_records_have_pointer_value_key_and_headers() -> None:
    found = records_of(stored([encode_headers({"n": b"v"}), b"", encode_headers({})], [None, b"k", b""]))
    assert found == [
        Record(5, b"a", None, {"n": b"v"}),
        Record(6, b"b", b"k", {}),
        Record(7, b"c", b"", {}),
    ]
    assert dict(found[0].headers) == {"n": b"v"}
    assert found[0].headers["n"] == b"v"
    assert records_of(stored(None))[0] == Record(5, b"a", None, {})


@pytest.mark.parametrize("after", [0, 4, 5, 6, 7, 100])
def test_records_begin_behind_a_cursor(after: int) -> None:
    assert [one.pointer for one in records_of(stored(None), after)] == [p for p in (5, 6, 7) if p > after]


def test_undecodable_headers_are_empty_with_their_bytes_and_the_reason() -> None:
    records = records_of(stored([encode_headers({"n": b"v"}), b"\x81\xa1n\xa1v", b""]))
    assert [(one.pointer, one.value) for one in records] == [(5, b"a"), (6, b"b"), (7, b"c")]
    assert [dict(one.headers) for one in records] == [{"n": b"v"}, {}, {}]
    assert [one.raw_headers for one in records] == [b"", b"\x81\xa1n\xa1v", b""]
    assert [bool(one.headers_problem) for one in records] == [False, True, False]
    assert "the value of 'n' is text, not binary" in records[1].headers_problem
    assert "xa1v" in repr(records[1].headers)
    assert pickle.loads(pickle.dumps(records[1])).raw_headers == records[1].raw_headers
