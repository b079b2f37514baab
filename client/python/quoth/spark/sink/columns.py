"""Rows of Spark as the columns of batches, with no step in Python for each of them.

    value     string or binary, never null
    key       string or binary, null where there is none                 may be left out
    headers   array<struct<key: string, value: binary>>, as Kafka's      may be left out
    topic     string, never null                                         needed unless an option names it

A record's headers are encoded, which headers.py does for many rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructField, StructType

from quoth.core.outgoing import BATCH_BYTES, RECORD_BYTES
from quoth.spark.sink.arrow_buffers import cells_of
from quoth.spark.sink.headers import encode_header_column
from quothwire.columns import Column
from quothwire.errors import QuothError, error

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_IGNORED = frozenset(("partition", "offset", "timestamp", "timestamptype", "ordinal"))
"""What a reading of Quoth, or of Kafka, has besides: where the row was stored before."""


class Names(NamedTuple):
    """What the columns are called that are written, None for those that are not there."""

    value: str
    key: str | None
    headers: str | None
    topic: str | None


class Batch(NamedTuple):
    """The columns of one batch, as `quoth.PartWriter.append` takes them."""

    values: Column
    keys: Column | None
    headers: Column | None


def names_of(schema: StructType, *, topic_is_given: bool) -> Names:
    """The columns of a DataFrame that are written, or raise ``bad_request`` for what cannot be.

    topic_is_given: an option names the topic, so a column does not count.
    """
    found = {field.name.lower(): field for field in schema.fields}
    for field in schema.fields:
        if (other := found[field.name.lower()]) is not field:
            text = f"columns {field.name!r} and {other.name!r}: one of them would be lost"
            raise error("bad_request", text, "drop one")
    for name in found.keys() - {"value", "key", "headers", "topic"} - _IGNORED:
        raise error(
            "bad_request",
            f"column {found[name].name!r} would be lost: a record has value, key, headers and topic",
            "drop it, or put it into the value: to_json(struct('*')) AS value",
        )
    for name, kinds in (
        ("value", _TEXTS), ("key", _TEXTS), ("headers", (_HEADERS,)), ("topic", (StringType(),)),
    ):  # fmt: skip
        if name in found and not any(_same(found[name].dataType, kind) for kind in kinds):
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            raise error(
                "bad_request",
                f"column {found[name].name!r} is {found[name].dataType.simpleString()}, not {wanted}",
                f"CAST({name} AS {kinds[0].simpleString()})",
            )
    if "value" not in found:
        raise error("bad_request", "there is no column 'value'", "like to_json(struct('*')) AS value")
    if "topic" not in found and not topic_is_given:
        raise error("bad_request", "which topic?", "set option topic, or have a column topic")
    named = {name: field.name for name, field in found.items()}
    topic = None if topic_is_given else named["topic"]
    return Names(named["value"], named.get("key"), named.get("headers"), topic)


def by_topic(rows: pa.RecordBatch, names: Names, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows for each topic. topic: that of all of them, None if a column says it."""
    if topic is not None:
        yield topic, rows
        return
    column = rows.column(rows.schema.get_field_index(names.topic))
    if column.null_count:
        raise _null("topic", "name a topic in every row, or in option topic")
    topics = pc.unique(column).to_pylist()
    for name in topics:
        yield name, rows if len(topics) == 1 else rows.filter(pc.equal(column, name))


class Gathering:
    """Rows for one topic, until there are enough for a batch of a MiB or so."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._waiting: list[Rows] = []
        self._bytes = 0

    def put(self, rows: pa.RecordBatch) -> Iterator[Batch]:
        """Take rows in; gives the batches that are full."""
        yield from self.take(Rows.of(rows, self._names))

    def take(self, rows: Rows) -> Iterator[Batch]:
        """Take in rows whose headers are encoded already; gives the batches that are full."""
        self._waiting.append(rows)
        self._bytes += rows.size
        if self._bytes >= BATCH_BYTES:
            yield from self._cut(keep_bytes=BATCH_BYTES)

    def rest(self) -> Iterator[Batch]:
        """What is left."""
        if self._waiting:
            yield from self._cut(keep_bytes=0)

    def _cut(self, keep_bytes: int) -> Iterator[Batch]:
        """Batches of all rows, but for fewer bytes than that at the end."""
        rows = Rows.joined(self._waiting)
        ends = rows.ends()
        begin, count = 0, len(ends) - 1
        while begin < count and ends[-1] - ends[begin] >= max(1, keep_bytes):
            fitting = int(np.searchsorted(ends, ends[begin] + BATCH_BYTES, "right")) - 1
            end = min(max(fitting, begin + 1), count)
            yield rows.batch(begin, end)
            begin = end
        left = rows.slice(begin, count)
        self._waiting = [left] if begin < count else []
        self._bytes = left.size if begin < count else 0


class Rows(NamedTuple):
    """Binary arrays, all of the same length; keys may be null, in which case they are empty besides."""

    values: Any
    keys: Any
    headers: Any

    @classmethod
    def of(cls, rows: pa.RecordBatch, names: Names) -> Rows:
        """The columns of some rows."""
        values = _binary(rows, names.value)
        if values.null_count:
            raise _null("value", "leave such rows out, or coalesce(value, '')")
        keys = None if names.key is None else _binary(rows, names.key)
        headers = None if names.headers is None else _headers(rows, names.headers)
        return cls(values, keys, headers)

    @classmethod
    def joined(cls, several: list[Rows]) -> Rows:
        """All of them, one behind the other."""
        if len(several) == 1:
            return several[0]
        columns = zip(*several, strict=True)
        return cls(*(None if arrays[0] is None else pa.concat_arrays(arrays) for arrays in columns))

    @property
    def size(self) -> int:
        """Bytes in a batch."""
        return int(self.ends()[-1])

    def slice(self, begin: int, end: int) -> Rows:
        """Some of them, without a copy."""
        return Rows(*(None if column is None else column[begin:end] for column in self))

    def ends(self) -> np.ndarray[Any, Any]:
        """How many bytes the rows take in a batch up to each of them, beginning with 0."""
        rows = np.arange(len(self.values) + 1, dtype=np.int64)
        columns = (cells_of(column)[0] for column in self if column is not None)
        return sum(columns, start=RECORD_BYTES * rows)

    def batch(self, begin: int, end: int) -> Batch:
        """Some of them as the columns of a batch."""
        columns: list[Any] = [
            None if column is None else _column(column) for column in self.slice(begin, end)
        ]
        return Batch(*columns)


def _binary(rows: pa.RecordBatch, name: str) -> Any:
    """A column of text or bytes as bytes, and nothing where it is null."""
    column = rows.column(rows.schema.get_field_index(name)).cast(pa.binary())
    return column if not column.null_count else _emptied(column)


def _emptied(column: Any) -> Any:
    """Arrow does not say what lies where there is null; a batch does: nothing."""
    filled = pc.fill_null(column, b"")
    return pc.if_else(column.is_valid(), filled, None)


def _headers(rows: pa.RecordBatch, name: str) -> Any:
    return encode_header_column(rows.column(rows.schema.get_field_index(name)))


def _column(array: Any) -> Column:
    ends, content = cells_of(array)
    validity = b""
    if array.null_count:
        there = array.is_valid().to_numpy(zero_copy_only=False)
        validity = np.packbits(there, bitorder="little").tobytes()
    return Column(ends.astype("<i4").tobytes(), content, validity)


def _null(what: str, hint: str) -> QuothError:
    return error("bad_request", f"a {what} is null", hint)


_TEXTS: tuple[DataType, ...] = (StringType(), BinaryType())


def _same(one: DataType, other: DataType) -> bool:
    """Are they the same, whatever may be null in them?"""
    return one.simpleString() == other.simpleString()
