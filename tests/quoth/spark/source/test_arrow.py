"""Stored batches as Arrow: the rows that the client decodes; damage is noticed before Arrow uses it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from quoth import Damaged
from quoth.spark.source import arrow
from quoth.spark.source.arrow import TYPES, record_batches
from quoth.spark.source.source import COLUMNS
from quothwire import batch as wire
from quothwire.batch import HEADER_BYTES, Stored
from quothwire.headers import encode_headers
from quothwire.pointer import POINTER_MAX, to_datetime

TOPIC = "orders"
Row = tuple[bytes, bytes | None, dict[str, bytes]]


def stored(rows: Sequence[Row], base: int, ordinal: int) -> Stored:
    """A batch as a log holds it; without the columns in which nothing stands."""
    values = [value for value, _, _ in rows]
    keys = [key for _, key, _ in rows]
    headers = [encode_headers(one) for _, _, one in rows]
    raw = wire.encode(
        values, keys if any(key is not None for key in keys) else None, headers if any(headers) else None
    )
    header = wire.parse_header(raw, 0).placed(base, ordinal)
    return Stored(header, memoryview(wire.stamp(header, 7) + raw[HEADER_BYTES:]))


def log_of(batches: Sequence[Sequence[Row]]) -> tuple[list[Stored], list[dict[str, Any]]]:
    """Batches one behind the other with holes between their pointers, and their rows as Spark has them."""
    found, rows = [], []
    base, ordinal = 1_767_323_045_000_000, 40
    for batch in batches:
        found.append(stored(batch, base, ordinal))
        for row, (value, key, headers) in enumerate(batch):
            rows.append(
                {
                    "key": key,
                    "value": value,
                    "topic": TOPIC,
                    "partition": 0,
                    "offset": base + row,
                    "timestamp": to_datetime(base + row),
                    "timestampType": 1,
                    "headers": [{"key": name, "value": one} for name, one in headers.items()] or None,
                    "ordinal": ordinal + row,
                }
            )
        base, ordinal = base + len(batch) + 1_000, ordinal + len(batch)
    return found, rows


def read(
    batches: Sequence[Stored],
    after: int = 0,
    until: int = POINTER_MAX,
    *columns: str,
) -> list[pa.RecordBatch]:
    """All tables, each of them checked by Arrow."""
    found = list(record_batches(batches, columns or list(TYPES), after, until, TOPIC))
    for one in found:
        one.validate(full=True)
    return found


def rows_of(tables: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """All rows."""
    return [row for one in tables for row in one.to_pylist()]


records = st.tuples(
    st.binary(max_size=20),
    st.none() | st.binary(max_size=8),
    st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
)
logs = st.lists(st.lists(records, min_size=1, max_size=9), max_size=6)


@given(logs, st.data())
def test_rows_are_those_of_the_records_in_the_range(log: list[list[Row]], data: st.DataObject) -> None:
    batches, rows = log_of(log)
    pointers = [row["offset"] for row in rows] or [5]
    after = data.draw(st.sampled_from([0, *pointers, *(one - 1 for one in pointers)]))
    until = data.draw(st.sampled_from([*pointers, POINTER_MAX]))
    assert rows_of(read(batches, after, until)) == [row for row in rows if after < row["offset"] <= until]


def test_types_are_exactly_what_spark_expects() -> None:
    schema = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])
    batches, _ = log_of([[(b"x", b"k", {"h": b"1"})]])
    (found,) = read(batches)
    assert found.schema.equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)


def test_only_the_columns_that_are_asked_for_are_built_in_their_order() -> None:
    batches, rows = log_of([[(b"x", b"k", {"h": b"1"})]])
    names = ("ordinal", "value", "offset")
    assert rows_of(read(batches, 0, POINTER_MAX, *names)) == [{name: rows[0][name] for name in names}]
    bad = stored([(b"x", None, {"h": b"1"})], 9, 0)
    assert rows_of(read([broken_headers(bad)], 0, POINTER_MAX, "value")) == [{"value": b"x"}]


def test_a_large_batch_is_not_copied() -> None:
    batches, _ = log_of([[(b"x" * 100, None, {})] * arrow.ROWS_MIN])
    (found,) = read(batches, 0, POINTER_MAX, "value")
    whole = pa.py_buffer(batches[0].data)
    heap = found.column(0).buffers()[2]
    assert whole.address < heap.address < whole.address + whole.size


def test_small_batches_are_joined_and_large_ones_are_not() -> None:
    batches, rows = log_of([[(b"x", b"k", {"h": b"1"})], [(b"y", None, {})]])
    assert rows_of(read(batches)) == rows, "keys and headers of one of them"
    batches, rows = log_of([[(b"x", None, {})] * 100] * 500)
    tables = read(batches)
    assert [one.num_rows for one in tables] == [20_000, 20_000, 10_000]
    assert rows_of(tables[2:]) == rows[40_000:]
    batches, _ = log_of([[(bytes(3 * 2**20), None, {})], [(bytes(14 * 2**20), None, {})]] * 2)
    assert [one.num_rows for one in read(batches)] == [1, 1, 1, 1]
    batches, _ = log_of([[(bytes(2**20), None, {})]] * 9)
    assert [one.num_rows for one in read(batches)] == [4, 4, 1]


def test_damage_is_reported_before_arrow_follows_an_offset(rng: random.Random) -> None:
    """Any offsets give rows of bytes within the batch, fewer rows, or `Damaged`."""
    good = stored([(rng.randbytes(9), rng.randbytes(3), {"h": b"1"}) for _ in range(5)], 1_000, 0)
    reported: list[str] = []
    for _ in range(2_000):
        data = bytearray(good.data)
        at = HEADER_BYTES + rng.randrange(3 * 4 * 6)
        data[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        try:
            read([Stored(good.header, memoryview(data))])
        except Damaged as problem:
            reported.append(problem.text)
    with pytest.raises(Damaged, match="50 records do not fit"):
        read([Stored(good.header._replace(records=50), good.data)])
    assert len(reported) > 500
    assert all(text.startswith("topic 'orders', the batch at 1000: ") for text in reported)


def test_malformed_headers_become_one_unnamed_header_with_their_bytes() -> None:
    rows: list[Row] = [(b"%d" % row, None, {"h": b"1"}) for row in range(3)]
    good, none = [{"key": "h", "value": b"1"}], [{"key": None, "value": b"\x81\xc1h\xc4\x011"}]
    for place in range(3):
        bad = broken_headers(stored(rows, 1_000, 40), place)
        found = rows_of(read([bad], 0, POINTER_MAX, "offset", "value", "headers"))
        assert found == [
            {"offset": 1_000 + row, "value": b"%d" % row, "headers": none if row == place else good}
            for row in range(3)
        ]


def broken_headers(batch: Stored, place: int = 0) -> Stored:
    """The same, some of its headers not msgpack. place: which, of those that there are."""
    data = bytearray(batch.data)
    at = -1
    for _ in range(place + 1):
        at = data.index(b"\xa1h", at + 1)
    data[at] = 0xC1
    return Stored(batch.header, memoryview(data))
