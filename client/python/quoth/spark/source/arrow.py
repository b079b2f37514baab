"""Converts stored batches to Arrow: values and keys are slices of the bytes that the broker sent.

A stored batch has int32 offsets, a validity bitmap and heaps as Arrow has them, so that a column needs no
step for each record. The offsets are validated before Arrow uses them: a wrong one would end the process.
Small batches are joined, because Spark is slow with small tables: at 100 rows each 2.5 times as slow as at
20,000. Headers are decoded one by one; those of old logs that cannot be decoded become one header with a null
key and their bytes.

pyarrow imports pandas, 0.2 s of a new process, when it converts Python objects. That happens for headers and
for constant columns only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quoth.batch import StoredBatch
from quothwire.batch import Header, Stored
from quothwire.columns import BatchColumns, Column, columns_of
from quothwire.errors import QuothError, error
from quothwire.headers import raw_of, readable_headers

ROWS_MIN, BYTES_MIN = 20_000, 4 * 2**20
"""Batches are joined until they have so many rows or stored bytes. Larger tables are not faster."""
BYTES_MAX = 16 * 2**20
"""Upper bound of the bytes of joined batches. A single stored batch is never larger."""

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
    "ordinal": pa.int64(),
}
"""All columns. ordinal: the number of records that the topic's log held before this one."""
PARTITION, LOG_APPEND_TIME = 0, 1
"""Kafka's columns for a topic with one partition, and for times that the broker assigns."""


def record_batches(
    stored: Iterable[Stored | StoredBatch],
    columns: Sequence[str],
    after: int,
    until: int,
    topic: str,
) -> Iterator[pa.RecordBatch]:
    """The records in (after, until] of stored batches of a topic, oldest first.

    stored: batches whose checksums match. columns: names of `TYPES`; others are not built. Raises `Damaged`
    for a batch whose offsets do not rise or do not fit into it.
    """
    schema = pa.schema([(name, TYPES[name]) for name in columns])
    constants = {
        "topic": _Constant(topic, TYPES["topic"]),
        "partition": _Constant(PARTITION, TYPES["partition"]),
        "timestampType": _Constant(LOG_APPEND_TIME, TYPES["timestampType"]),
    }
    for pieces in _joined(_pieces(stored, after, until, topic)):
        rows = sum(piece.rows for piece in pieces)
        arrays = [
            constants[name].times(rows) if name in constants else _column(pieces, name, rows)
            for name in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def buffers_of(array: pa.Array) -> tuple[NDArray[np.int32], memoryview]:
    """The offsets of the values of a binary or string array, from 0 on, and their bytes, not copied.

    A null may have any bytes.
    """
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    first, last = ends[[0, -1]].tolist()
    return ends - ends[0], memoryview(b"" if content is None else content)[first:last]


class _Constant:
    """A column with one value in every row; its arrays are slices of one array."""

    def __init__(self, value: str | int, kind: pa.DataType) -> None:
        self._value = value
        self._array = pa.nulls(0, kind)

    def times(self, rows: int) -> pa.Array:
        """Return an array of so many rows."""
        if len(self._array) < rows:
            self._array = pa.repeat(pa.scalar(self._value, self._array.type), rows)
        return self._array[:rows]


class _Piece(NamedTuple):
    """The rows [begin, end) of a stored batch."""

    topic: str
    header: Header
    columns: BatchColumns
    begin: int
    end: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.end - self.begin

    @property
    def size(self) -> int:
        """The share of these rows in the stored bytes."""
        return self.header.size * self.rows // self.header.records

    def binary(self, column: Column | None) -> pa.Array:
        """The rows of a column, null where there is nothing."""
        if column is None:
            return pa.nulls(self.rows, pa.binary())
        validity = pa.py_buffer(column.validity) if len(column.validity) else None
        buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.heap)]
        try:
            array = pa.Array.from_buffers(pa.binary(), self.header.records, buffers)
            array.validate(full=True)
        except pa.ArrowInvalid as problem:
            raise _damaged(self.topic, self.header, str(problem)) from None
        return array[self.begin : self.end]

    def decoded_headers(self) -> pa.Array:
        """The headers, a list for each row, null where there are none."""
        if self.columns.headers is None:
            return pa.nulls(self.rows, TYPES["headers"])
        rows = list(map(_pairs, self.binary(self.columns.headers).to_pylist()))
        names = pa.array([name for row in rows for name, _ in row], _HEADER.field("key").type)
        values = pa.array([value for row in rows for _, value in row], _HEADER.field("value").type)
        return pa.ListArray.from_arrays(
            pa.array(accumulate(map(len, rows), initial=0), pa.int32()),
            pa.StructArray.from_arrays([names, values], fields=list(_HEADER)),
            type=TYPES["headers"],
            mask=pa.array([not row for row in rows], pa.bool_()),
        )


def _pairs(encoded: bytes) -> Collection[tuple[str | None, bytes]]:
    """Names and values of one record's headers."""
    headers = readable_headers(encoded)
    raw = raw_of(headers)
    return [(None, raw)] if raw else headers.items()


def _column(pieces: Sequence[_Piece], name: str, rows: int) -> pa.Array:
    """Concatenate a column of some pieces, with so many rows."""
    match name:
        case "ordinal":
            return _numbers(pieces, [piece.header.ordinal for piece in pieces])
        case "offset" | "timestamp":
            return _numbers(pieces, [piece.header.base for piece in pieces]).view(TYPES[name])
        case "value":
            arrays = [piece.binary(piece.columns.values) for piece in pieces]
        case "key" if any(piece.columns.keys is not None for piece in pieces):
            arrays = [piece.binary(piece.columns.keys) for piece in pieces]
        case "headers" if any(piece.columns.headers is not None for piece in pieces):
            arrays = [piece.decoded_headers() for piece in pieces]
        case _:
            return pa.nulls(rows, TYPES[name])
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _numbers(pieces: Sequence[_Piece], firsts: Sequence[int]) -> pa.Array:
    """Numbers of the rows, int64, which rise by one within a piece. firsts: of the batch of each piece."""
    parts = [
        np.arange(first + piece.begin, first + piece.end, dtype=np.int64)
        for piece, first in zip(pieces, firsts, strict=True)
    ]
    numbers = np.concatenate(parts)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _pieces(stored: Iterable[Stored | StoredBatch], after: int, until: int, topic: str) -> Iterator[_Piece]:
    for one in stored:
        header = one.header
        begin = max(0, after + 1 - header.base)
        end = min(header.records, until + 1 - header.base)
        if begin < end:
            try:
                found = columns_of(header, one.data)
            except QuothError as problem:
                raise _damaged(topic, header, problem.text) from None
            yield _Piece(topic, header, found, begin, end)


def _joined(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Group pieces into tables of `ROWS_MIN` rows or `BYTES_MIN` bytes."""
    joined: list[_Piece] = []
    rows = size = 0
    for piece in pieces:
        if joined and size + piece.size > BYTES_MAX:
            yield joined
            joined, rows, size = [], 0, 0
        joined.append(piece)
        rows, size = rows + piece.rows, size + piece.size
        if rows >= ROWS_MIN or size >= BYTES_MIN:
            yield joined
            joined, rows, size = [], 0, 0
    if joined:
        yield joined


def _damaged(topic: str, header: Header, text: str) -> QuothError:
    return error("damaged", f"topic {topic!r}, the batch at {header.base}: {text}")
