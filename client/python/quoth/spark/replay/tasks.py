"""The work of a task: converts rows to batches and stages them as one part of a transaction.

There is no step in Python for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quoth import PartWriter, RequestError, StagedPart
from quoth.spark.connections import client
from quoth.spark.replay.chunking import ChunkPart, FileGroup
from quoth.spark.replay.inputs import POINTER_HEADER, ReplayStream
from quoth.spark.replay.parquet import ParquetColumns, damage_in, micros, opened, read_column, too_few
from quoth.spark.sink.columns import BatchBuilder, ColumnNames, RowColumns
from quoth.spark.sink.headers import encode_header_column, without_undecoded
from quoth.spark.source.arrow import TYPES
from quothwire.columns import BatchColumns
from quothwire.errors import QuothError, error

_READ_ROWS = 65_536
_READ_BYTES = 8 * 2**20
"""Limits of the rows that a task decodes at once."""


class StagedChunkPart(NamedTuple):
    """A staged part. bytes: of keys, values and headers. undecoded: records without their headers, because
    their topic could not decode these."""

    part: StagedPart
    bytes: int
    undecoded: int


def stage(
    url: str,
    timeout: float,
    key: str | None,
    stream: ReplayStream,
    version: int,
    numbered: tuple[int, ChunkPart],
) -> StagedChunkPart:
    """Stage a part of the chunk with this version. key: the path of the key file. stream: its groups are not
    used.

    Raises `Damaged` or `RequestError`, which name the file, FileNotFoundError, and as `quoth.PartWriter`.
    """
    (number, part), columns = numbered, stream.columns
    builder = BatchBuilder(ColumnNames(columns.value, None, None, None))
    size = undecoded = 0
    transaction = client(url, timeout, key).transaction(stream.target, stream.application, version)
    with transaction.part(number, timeout=timeout) as writer:
        for rows, bare in rows_of(part, columns):
            lengths = [pc.sum(pc.binary_length(column)).as_py() for column in rows if column is not None]
            size += sum(filter(None, lengths))
            undecoded += bare
            _append(writer, builder.take(rows), part)
        _append(writer, builder.rest(), part)
        return StagedChunkPart(writer.finish(), size, undecoded)


def rows_of(part: ChunkPart, columns: ParquetColumns) -> Iterator[tuple[RowColumns, int]]:
    """Read the records of a part, and how many are without their headers. Raises as `stage`."""
    for group in part.groups:
        with opened(group.path) as file:
            try:
                with damage_in(group.path):
                    for records in _read(file, group, part, columns):
                        yield _rows(_within(records, columns, group.path), columns)
            except QuothError as problem:
                raise _in_files(problem, [group.path]) from None


def with_pointer(headers: Any | None, pointers: pa.Array) -> tuple[pa.Array, int]:
    """Encode headers, and the original pointers as one more header.

    headers: an array of lists of key and value, as in Kafka; None if there are none. pointers: int64. Returns
    how many undecoded headers, a single one with a null key, were left out, too. A pointer header of an
    earlier replay is replaced. Raises as `encode_header_column`.
    """
    if headers is None:
        others, undecoded = pa.nulls(len(pointers), TYPES["headers"]), 0
    else:
        others, undecoded = without_undecoded(headers)
    return encode_header_column(others, (POINTER_HEADER, pointers.cast(pa.string()))), undecoded


# -- inside -------------------------------------------------------------------------------------------------


def _append(writer: PartWriter, batches: Iterable[BatchColumns], part: ChunkPart) -> None:
    try:
        for batch in batches:
            writer.append(*batch)
    except RequestError as problem:
        raise _in_files(problem, [group.path for group in part.groups]) from None


def _read(
    file: pq.ParquetFile, group: FileGroup, part: ChunkPart, columns: ParquetColumns
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a group that belong to the part."""
    begin, end = _rows_between(file, group, part, columns)
    width = max(1, group.bytes // group.rows)
    step = max(1, min(_READ_ROWS, _READ_BYTES // width))
    at = 0
    if begin == end:
        return
    for records in file.iter_batches(step, [group.number], columns.read):
        first, stop = max(begin - at, 0), min(end - at, records.num_rows)
        if first < stop:
            yield records.slice(first, stop - first)
        at += records.num_rows
        if at >= end:
            return
    raise too_few(group, at)


def _rows_between(
    file: pq.ParquetFile, group: FileGroup, part: ChunkPart, columns: ParquetColumns
) -> tuple[int, int]:
    """The rows of a group that belong to the part, as a begin and an end."""
    if file.metadata.num_row_groups <= group.number or (
        file.metadata.row_group(group.number).num_rows != group.rows
    ):
        raise error("damaged", "the file has changed since the replay began", "run it again")
    if part.after < group.low and group.high <= part.until:
        return 0, group.rows
    if columns.axis is None:
        return max(0, part.after + 1 - group.low), min(group.rows, part.until + 1 - group.low)
    positions = np.asarray(read_column(file, group, columns.axis))
    begin, end = np.searchsorted(positions, [part.after, part.until], "right").tolist()
    return begin, end


def _within(records: pa.RecordBatch, columns: ParquetColumns, path: str) -> pa.RecordBatch:
    """Select the records of the requested time."""
    if columns.time is None or (columns.since, columns.until) == (None, None):
        return records
    times = micros(records.column(columns.time), columns.time, path)
    wanted = np.ones(len(times), bool)
    if columns.since is not None:
        wanted &= times >= columns.since
    if columns.until is not None:
        wanted &= times < columns.until
    return records if wanted.all() else records.filter(pa.array(wanted))


def _rows(records: pa.RecordBatch, columns: ParquetColumns) -> tuple[RowColumns, int]:
    names = ColumnNames(columns.value, columns.key, columns.headers, None)
    if columns.pointer is None:
        return RowColumns.of(records, names), 0
    pointers = records.column(columns.pointer)
    if pointers.null_count:
        raise error("bad_request", f"column {columns.pointer!r} is null in {pointers.null_count} rows")
    headers = None if columns.headers is None else records.column(columns.headers)
    encoded, undecoded = with_pointer(headers, pointers)
    return RowColumns.of(records, names._replace(headers=None))._replace(headers=encoded), undecoded


def _in_files(problem: QuothError, paths: list[str]) -> QuothError:
    """Add the files to an error that does not name one."""
    if any(path in problem.text for path in paths):
        return problem
    where = paths[0] if paths[0] == paths[-1] else f"{paths[0]} to {paths[-1]}"
    return error(problem.code, f"{where}: {problem.text}", problem.hint)
