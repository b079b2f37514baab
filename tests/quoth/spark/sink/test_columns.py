"""Rows of Spark as the columns of batches: the same records, however Arrow holds them; no Spark needed."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types

from kit.broker.peers import refused
from kit.scale import times
from quoth.core.outgoing import BATCH_BYTES
from quoth.spark.sink.columns import BatchBuilder, ColumnNames, by_topic, names_of
from quoth.spark.source.source import COLUMNS
from quothwire import batch
from quothwire.columns import encode_columns
from quothwire.errors import QuothError
from quothwire.headers import decode_headers

NAMES = ColumnNames("value", "key", "headers", "topic")
VALUE = ColumnNames("value", None, None, None)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[bytes, bytes | None, dict[str, bytes]]


def rows_of(columns: dict[str, Any]) -> pa.RecordBatch:
    """Arrow rows."""
    return pa.RecordBatch.from_pydict(columns)


def values_of(values: list[bytes]) -> pa.RecordBatch:
    """Arrow rows with values alone."""
    return rows_of({"value": pa.array(values, pa.binary())})


def arrow(rows: list[Row], text: pa.DataType) -> pa.RecordBatch:
    """Rows as Spark hands them over, keys and values of a type."""
    headers = [[{"key": name, "value": value} for name, value in one.items()] for _, _, one in rows]
    return rows_of(
        {
            "value": pa.array([value for value, _, _ in rows], pa.binary()).cast(text),
            "key": pa.array([key for _, key, _ in rows], pa.binary()).cast(text),
            "headers": pa.array(headers, HEADERS),
        }
    )


def decoded(builder: BatchBuilder, *portions: pa.RecordBatch) -> list[batch.DecodedBatch]:
    """The batches that portions become."""
    found = [one for portion in portions for one in builder.put(portion)]
    found += builder.rest()
    return [batch.decode(encode_columns(*one)) for one in found]


def records(batches: list[batch.DecodedBatch]) -> list[Row]:
    """The records in batches."""
    return [
        (value, key, decode_headers(headers))
        for one in batches
        for value, key, headers in zip(
            one.values,
            one.keys or [None] * len(one.values),
            one.headers or [b""] * len(one.values),
            strict=True,
        )
    ]


texts = st.text(max_size=8).map(str.encode)
rows = st.lists(
    st.tuples(
        texts, st.none() | texts, st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=2)
    ),
    max_size=30,
)


@settings(max_examples=80, print_blob=True)
@given(
    st.lists(rows, min_size=1, max_size=4),
    st.sampled_from([pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]),
    st.integers(0, 40),
)
def test_records_are_the_rows_in_their_order(portions: list[list[Row]], text: pa.DataType, skip: int) -> None:
    """Also of portions that are slices of others, whose bitmaps begin anywhere."""
    given_rows = [arrow(portion, text).slice(skip) for portion in portions]
    found = records(decoded(BatchBuilder(NAMES), *given_rows))
    assert found == [row for portion in portions for row in portion[skip:]]


def test_bytes_under_a_null_are_not_written() -> None:
    """Arrow allows anything there."""
    bits = pa.py_buffer(bytes([0b101]))
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 1, 3, 4)))
    keys = pa.Array.from_buffers(pa.binary(), 3, [bits, offsets, pa.py_buffer(b"aXXb")])
    builder = BatchBuilder(ColumnNames("value", "key", None, None))
    assert list(builder.put(rows_of({"value": ["1", "2", "3"], "key": keys}))) == []
    (columns,) = builder.rest()
    encoded = encode_columns(*columns)
    assert batch.decode(encoded).keys == [b"a", None, b"b"]
    assert b"XX" not in encoded


def test_batches_have_a_mebibyte_for_any_portions(rng: random.Random, seed: int) -> None:
    values = [bytes(rng.choice((0, 50, 5_000, 200_000))) for _ in range(times(600, 3_000))]
    cuts = sorted(rng.sample(range(1, len(values)), 40))
    portions = [values[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    found = decoded(BatchBuilder(VALUE), *map(values_of, portions))
    assert records(found) == [(value, None, {}) for value in values], f"QUOTH_SEED={seed}"
    sizes = [one.header.body_bytes for one in found]
    assert max(sizes) <= BATCH_BYTES
    assert min(sizes[:-1]) > BATCH_BYTES - 200_013, f"QUOTH_SEED={seed}"
    larger = decoded(BatchBuilder(VALUE), values_of([b"a", bytes(5 * BATCH_BYTES), b""]))
    assert [len(one.values) for one in larger] == [1, 1, 1], "a row that is larger is a batch of its own"
    assert [(one.keys, one.headers) for one in larger] == [(None, None)] * 3


def test_rows_are_written_to_the_topic_of_their_column() -> None:
    names = ColumnNames("value", None, None, "topic")
    given_rows = rows_of({"topic": ["b", "a", "b"], "value": ["1", "2", "3"]})
    found = {topic: chosen.column("value").to_pylist() for topic, chosen in by_topic(given_rows, names, None)}
    assert found == {"a": ["2"], "b": ["1", "3"]}
    assert [topic for topic, _ in by_topic(given_rows, names, "given")] == ["given"]
    with refused("bad_request"):
        list(by_topic(rows_of({"topic": ["a", None], "value": ["1", "2"]}), names, None))


def test_null_value_and_wrong_headers_are_refused() -> None:
    """`test_headers` has the headers that are refused."""
    for columns in ({"value": ["1", None]}, {"value": ["1"], "headers": pa.array([[None]], HEADERS)}):
        headers = "headers" if "headers" in columns else None
        with refused("bad_request"):
            decoded(BatchBuilder(ColumnNames("value", None, headers, None)), rows_of(columns))


# -- which columns ------------------------------------------------------------------------------------------


TEXT, BYTES = types.StringType(), types.BinaryType()


def headers_of(value: types.DataType) -> types.DataType:
    """The type of headers with such values."""
    pair = [types.StructField("key", TEXT), types.StructField("value", value)]
    return types.ArrayType(types.StructType(pair))


def names(*, topic_is_given: bool = True, **columns: types.DataType) -> ColumnNames:
    """The columns that are written of a DataFrame."""
    schema = types.StructType([types.StructField(name, kind) for name, kind in columns.items()])
    return names_of(schema, topic_is_given=topic_is_given)


def test_columns_of_a_reading_may_be_written_as_they_are_in_any_case() -> None:
    assert names(topic_is_given=False, **COLUMNS) == ColumnNames("value", "key", "headers", "topic")
    assert names(topic_is_given=True, **COLUMNS) == ColumnNames("value", "key", "headers", None)
    assert names(VALUE=TEXT, Key=TEXT) == ColumnNames("VALUE", "Key", None, None)


WRONG_COLUMNS: dict[str, tuple[dict[str, types.DataType], bool]] = {
    "there is no column 'value'": ({"key": TEXT}, True),
    "which topic?": ({"value": TEXT}, False),
    "'value' is int, not string or binary": ({"value": types.IntegerType()}, True),
    "'key' is bigint": ({"value": TEXT, "key": types.LongType()}, True),
    "'topic' is binary": ({"value": TEXT, "topic": BYTES}, False),
    "'headers' is map<": ({"value": TEXT, "headers": types.MapType(TEXT, BYTES)}, True),
    "'headers' is array<": ({"value": TEXT, "headers": headers_of(TEXT)}, True),
    "columns 'value' and 'VALUE'": ({"value": TEXT, "VALUE": TEXT}, True),
    "'price' would be lost": ({"value": TEXT, "price": types.DoubleType()}, True),
}


def test_columns_that_cannot_be_written_are_refused_with_the_possible_ones() -> None:
    for says, (columns, topic_is_given) in WRONG_COLUMNS.items():
        with pytest.raises(QuothError) as problem:
            names(topic_is_given=topic_is_given, **columns)
        assert problem.value.code == "bad_request"
        assert says in problem.value.text
        assert problem.value.hint
