"""Records of a decoded batch: all that was put in, and headers that matter only to those who look at them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quothwire import batch
from quothwire.batch import Batch, encode_headers
from quothwire.errors import Damaged
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


def test_values_and_pointers_need_no_headers() -> None:
    """A producer may have written anything there; whoever looks is told so, and nobody else."""
    found = stored([encode_headers({"n": b"v"}), b"\xc1", b""])
    records = closed_records_of(found)
    assert [(one.pointer, one.value) for one in records] == [(5, b"a"), (6, b"b"), (7, b"c")]
    assert records[0].headers == {"n": b"v"}
    assert "xc1" in repr(records[1])
    for look in (
        lambda: records[1].headers.get("n"),
        lambda: len(records[1].headers),
        lambda: records_of(found),
    ):
        with pytest.raises(Damaged):
            look()
