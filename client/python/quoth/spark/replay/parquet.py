"""The Parquet files that a replay reads: footers, row groups, columns, and the errors that name the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quoth.spark.archive.parquet import damage_of
from quothwire.errors import error

damage_in = partial(
    damage_of, hint="nothing of its chunk was published; put a copy of the file back and run it again"
)
"""Raises `Damaged` for an invalid file; errors of the file system pass unchanged."""
READERS = 8
"""Threads that read footers, because a shared file system is slow."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ParquetColumns(NamedTuple):
    """The columns of the files that become a record, None if absent.

    pointer: goes into a header. axis: has the position of each record, a rising pointer; None if positions
    are numbers of rows. time: selects rows, from since on and before until, in microseconds, and is the time
    of the rate limit.
    """

    value: str
    key: str | None = None
    headers: str | None = None
    pointer: str | None = None
    axis: str | None = None
    time: str | None = None
    since: int | None = None
    until: int | None = None

    @property
    def read(self) -> list[str]:
        """The columns that a task reads."""
        time = self.time if self.since is not None or self.until is not None else None
        names = (self.value, self.key, self.headers, self.pointer, time)
        return list(dict.fromkeys(name for name in names if name is not None))

    @property
    def named(self) -> list[str]:
        """All of them."""
        return list(dict.fromkeys(filter(None, (*self.read, self.axis, self.time))))


class RowGroup(NamedTuple):
    """A row group. bytes: of the columns to read, uncompressed. lowest, highest: statistics of a column, or
    None."""

    number: int
    rows: int
    bytes: int
    lowest: Any
    highest: Any


class FileFooter(NamedTuple):
    """The footer of a file. size: bytes of the file."""

    path: str
    size: int
    rows: int
    groups: tuple[RowGroup, ...]


def read_footers(paths: Iterable[Path], columns: ParquetColumns, ranked: str | None) -> list[FileFooter]:
    """Read the footers of some files, in their order. ranked: the column whose statistics are wanted.

    Raises OSError, `Damaged` for an invalid Parquet file, or `RequestError` ``bad_request`` for a
    file without the columns or with other types; each names the file.
    """
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(lambda path: _read_footer(path, columns, ranked), paths))


def schema_of(path: Path) -> pa.Schema:
    """The columns of a file. Raises OSError or `Damaged`."""
    with opened(str(path)) as file:
        return file.schema_arrow


def micros(column: pa.Array | pa.ChunkedArray, name: str, path: str) -> np.ndarray[Any, Any]:
    """Convert a column of times, or of microseconds since 1970, to int64. Raises ``bad_request`` for a
    null."""
    if column.null_count:
        raise error(
            "bad_request",
            f"{path}: column {name!r} is null in {column.null_count} rows, which so have no time",
            "give these a time or leave them out; nothing of this chunk was published",
        )
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return np.asarray(column.cast(pa.int64()))


def as_micros(value: Any) -> int | None:
    """Convert a time from the statistics to microseconds; None for another type."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int) else None


def check_columns(schema: pa.Schema, columns: ParquetColumns, path: str) -> None:
    """Raise ``bad_request`` unless a file has the columns, each of a type that a record can take."""
    for name, kind in (
        (columns.value, _TEXT),
        (columns.key, _TEXT),
        (columns.headers, _HEADERS),
        (columns.pointer, _WHOLE),
        (columns.axis, _WHOLE),
        (columns.time, _TIME),
    ):
        if name is None:
            continue
        if schema.get_all_field_indices(name) == []:
            there = ", ".join(schema.names)
            raise error("bad_request", f"{path} has no column {name!r}", f"its columns: {there}"[:500])
        found = schema.field(name).type
        if not kind.takes(found):
            raise error("bad_request", f"{path}: column {name!r} is {found}, not {kind.wanted}", kind.hint)


def opened(path: str) -> pq.ParquetFile:
    """Open a file, with verification of page checksums. Raises OSError or `Damaged`."""
    with damage_in(path):
        return pq.ParquetFile(path, page_checksum_verification=True)


def read_column(file: pq.ParquetFile, path: str, number: int, rows: int, name: str) -> pa.ChunkedArray:
    """Read a column of a row group that has so many rows.

    Raises `Damaged`, also for fewer rows: the head of a page has no checksum, and pyarrow skips a page whose
    head has an unknown type.
    """
    with damage_in(path):
        column = file.read_row_group(number, [name]).column(0)
        if len(column) != rows:
            raise too_few(number, len(column), rows)
    return column


def too_few(number: int, found: int, rows: int) -> ValueError:
    """The error for a row group with fewer rows than its footer says."""
    return ValueError(f"row group {number} ends after {found} of {rows} rows")


# -- inside -------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """The types that a column may have."""

    takes: Callable[[pa.DataType], bool]
    wanted: str
    hint: str


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        return False
    pair = {field.name: field.type for field in kind.value_type}
    return pair.keys() == {"key", "value"} and pa.types.is_string(pair["key"]) and _is_text(pair["value"])


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind))


def _is_time(kind: pa.DataType) -> bool:
    return _is_whole(kind) or pa.types.is_timestamp(kind)


_TEXT = _Kind(_is_text, "text or bytes", "write the table with it as text or bytes, or name another column")
_HEADERS = _Kind(
    _is_headers,
    "a list of structs of key: text and value: bytes",
    "write the table with such headers, or leave them out: --headers-column ''",
)
_WHOLE = _Kind(_is_whole, "int64", "a pointer is a whole number; name another column")
_TIME = _Kind(
    _is_time,
    "a timestamp, or int64 of microseconds since 1970",
    "write the table with it so, or name another",
)


def _read_footer(path: Path, columns: ParquetColumns, ranked: str | None) -> FileFooter:
    with opened(str(path)) as file:
        check_columns(file.schema_arrow, columns, str(path))
        told, size = file.metadata, path.stat().st_size
    groups = tuple(_groups(told, columns.read, ranked))
    return FileFooter(str(path), size, sum(group.rows for group in groups), groups)


def _groups(told: pq.FileMetaData, names: list[str], ranked: str | None) -> Iterator[RowGroup]:
    leaves = [told.schema.column(number).path for number in range(told.num_columns)]
    wanted = [number for number, leaf in enumerate(leaves) if leaf.partition(".")[0] in names]
    rank = leaves.index(ranked) if ranked in leaves else None
    for number in range(told.num_row_groups):
        group = told.row_group(number)
        if not group.num_rows:
            continue
        size = sum(group.column(leaf).total_uncompressed_size for leaf in wanted)
        lowest, highest = _extremes(group, rank)
        yield RowGroup(number, group.num_rows, size, lowest, highest)


def _extremes(group: pq.RowGroupMetaData, rank: int | None) -> tuple[Any, Any]:
    """The lowest and the highest value by the statistics of a column."""
    found = None if rank is None else group.column(rank).statistics
    return (found.min, found.max) if found is not None and found.has_min_max else (None, None)
