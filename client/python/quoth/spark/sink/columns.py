"""Converts rows of Spark to the columns of batches, with no step in Python for each row.

    value     string or binary, never null
    key       string or binary, null where there is none                 may be left out
    headers   array<struct<key: string, value: binary>>, as Kafka's      may be left out
    topic     string, never null                                         needed unless an option names it

headers.py encodes the headers of many rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from quoth.core.outgoing import BATCH_BYTES
from quoth.spark.sink.headers import encode_header_column
from quoth.spark.source.arrow import TYPES, buffers_of
from quothwire.columns import BatchColumns, Column
from quothwire.errors import QuothError, error
from quothwire.record import RECORD_BYTES

_TEXTS = ("string", "binary")
_KINDS = {
    "value": _TEXTS,
    "key": _TEXTS,
    "headers": (from_arrow_type(TYPES["headers"]).simpleString(),),
    "topic": ("string",),
}
"""The types of the columns, by their names; a type's name says nothing of null."""
_IGNORED = frozenset(("partition", "offset", "timestamp", "timestamptype", "ordinal"))
"""Columns of a Quoth or Kafka source that say where the row was stored before."""


class ColumnNames(NamedTuple):
    """The names of the columns to write, None for those that are absent."""

    value: str
    key: str | None
    headers: str | None
    topic: str | None


def names_of(schema: StructType, *, topic_is_given: bool) -> ColumnNames:
    """Select the columns of a DataFrame to write. Raises ``bad_request`` for others, and for wrong types.

    topic_is_given: an option names the topic, so that a column topic is ignored.
    """
    found = {field.name.lower(): field for field in schema.fields}
    for field in schema.fields:
        if (other := found[field.name.lower()]) is not field:
            text = f"columns {field.name!r} and {other.name!r}: one of them would be lost"
            raise error("bad_request", text, "drop one")
    for name in found.keys() - _KINDS.keys() - _IGNORED:
        raise error(
            "bad_request",
            f"column {found[name].name!r} would be lost: a record has value, key, headers and topic",
            "drop it, or put it into the value: to_json(struct('*')) AS value",
        )
    for name, kinds in _KINDS.items():
        kind = found[name].dataType.simpleString() if name in found else kinds[0]
        if kind not in kinds:
            text = f"column {found[name].name!r} is {kind}, not {' or '.join(kinds)}"
            raise error("bad_request", text, f"CAST({name} AS {kinds[0]})")
    if "value" not in found:
        raise error("bad_request", "there is no column 'value'", "like to_json(struct('*')) AS value")
    if "topic" not in found and not topic_is_given:
        raise error("bad_request", "which topic?", "set option topic, or have a column topic")
    named = {name: field.name for name, field in found.items()}
    topic = None if topic_is_given else named["topic"]
    return ColumnNames(named["value"], named.get("key"), named.get("headers"), topic)


def by_topic(
    rows: pa.RecordBatch, names: ColumnNames, topic: str | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Divide rows by topic. topic: the one of all rows, None if a column names it."""
    if topic is not None:
        yield topic, rows
        return
    column = rows.column(names.topic)
    if column.null_count:
        raise _null("topic", "name a topic in every row, or in option topic")
    topics = pc.unique(column).to_pylist()
    for name in topics:
        yield name, rows if len(topics) == 1 else rows.filter(pc.equal(column, name))


class BatchBuilder:
    """Joins the rows of one topic to batches of about a MiB."""

    def __init__(self, names: ColumnNames) -> None:
        self._names = names
        self._pending: list[RowColumns] = []
        self._bytes = 0

    def put(self, rows: pa.RecordBatch) -> Iterator[BatchColumns]:
        """Add rows; yields full batches."""
        yield from self.take(RowColumns.of(rows, self._names))

    def take(self, rows: RowColumns) -> Iterator[BatchColumns]:
        """Add rows with encoded headers; yields full batches."""
        self._pending.append(rows)
        self._bytes += rows.size
        if self._bytes >= BATCH_BYTES:
            yield from self._cut(keep_bytes=BATCH_BYTES)

    def rest(self) -> Iterator[BatchColumns]:
        """Yield the batches of the rows that are left."""
        if self._pending:
            yield from self._cut(keep_bytes=0)

    def _cut(self, keep_bytes: int) -> Iterator[BatchColumns]:
        """Yield batches of all rows, but for fewer bytes than `keep_bytes` at the end."""
        rows = RowColumns.joined(self._pending)
        ends = rows.ends()
        begin, count = 0, len(ends) - 1
        while begin < count and ends[-1] - ends[begin] >= max(1, keep_bytes):
            fitting = int(np.searchsorted(ends, ends[begin] + BATCH_BYTES, "right")) - 1
            end = min(max(fitting, begin + 1), count)
            yield rows.batch(begin, end)
            begin = end
        left = rows.slice(begin, count)
        self._pending = [left] if begin < count else []
        self._bytes = left.size if begin < count else 0


class RowColumns(NamedTuple):
    """Binary arrays of the same length. Only keys may be null; there their bytes are empty."""

    values: Any
    keys: Any
    headers: Any

    @classmethod
    def of(cls, rows: pa.RecordBatch, names: ColumnNames) -> RowColumns:
        """Convert rows. Raises ``bad_request`` for a null value, and as `encode_header_column`."""
        values = _binary(rows, names.value)
        if values.null_count:
            raise _null("value", "leave such rows out, or coalesce(value, '')")
        keys = None if names.key is None else _binary(rows, names.key)
        headers = None if names.headers is None else encode_header_column(rows.column(names.headers))
        return cls(values, keys, headers)

    @classmethod
    def joined(cls, several: list[RowColumns]) -> RowColumns:
        """Concatenate rows."""
        if len(several) == 1:
            return several[0]
        columns = zip(*several, strict=True)
        return cls(*(None if arrays[0] is None else pa.concat_arrays(arrays) for arrays in columns))

    @property
    def size(self) -> int:
        """The bytes of the rows in a batch."""
        return int(self.ends()[-1])

    def slice(self, begin: int, end: int) -> RowColumns:
        """Return some rows, without a copy."""
        return RowColumns(*(None if column is None else column[begin:end] for column in self))

    def ends(self) -> np.ndarray[Any, Any]:
        """The offset of each row in the bytes of a batch, from 0 on, and the end of the last one."""
        rows = np.arange(len(self.values) + 1, dtype=np.int64)
        columns = (buffers_of(column)[0] for column in self if column is not None)
        return sum(columns, start=RECORD_BYTES * rows)

    def batch(self, begin: int, end: int) -> BatchColumns:
        """Convert some rows to the columns of a batch."""
        columns: list[Any] = [
            None if column is None else _column(column) for column in self.slice(begin, end)
        ]
        return BatchColumns(*columns)


def _binary(rows: pa.RecordBatch, name: str) -> Any:
    """Convert a column of text or bytes to bytes. A null has no bytes in a batch; Arrow allows any."""
    column = rows.column(name).cast(pa.binary())
    if not column.null_count:
        return column
    return pc.if_else(column.is_valid(), pc.fill_null(column, b""), None)


def _column(array: Any) -> Column:
    ends, content = buffers_of(array)
    validity = b""
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        validity = np.packbits(valid, bitorder="little").tobytes()
    return Column(ends.astype("<i4").tobytes(), content, validity)


def _null(what: str, hint: str) -> QuothError:
    return error("bad_request", f"a {what} is null", hint)
