"""The Parquet files that a replay reads: footers, row groups, columns, and the errors that name the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quoth.spark.archive.parquet import damage_of
from quoth.spark.replay.chunking import FileGroup
from quothwire.errors import error

damage_in = partial(
    damage_of, hint="nothing of its chunk was published; put a copy of the file back and run it again"
)
"""Raises `Damaged` for an invalid file; errors of the file system pass unchanged."""
READERS = 8
"""Threads that read footers, because a shared file system is slow."""


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


class FileFooter(NamedTuple):
    """The footer of a file. size: bytes of the file. groups: their positions are rows of the file, from 1."""

    path: str
    size: int
    rows: int
    groups: tuple[FileGroup, ...]


def read_footers(paths: Iterable[Path], columns: ParquetColumns) -> list[FileFooter]:
    """Read the footers of some files, in their order, with the statistics of the time.

    Raises OSError, `Damaged` for an invalid Parquet file, or `RequestError` ``bad_request`` for a file
    without the columns or with other types; each names the file.
    """
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(lambda path: _read_footer(path, columns), paths))


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


def opened(path: str) -> pq.ParquetFile:
    """Open a file, with verification of page checksums. Raises OSError or `Damaged`."""
    with damage_in(path):
        return pq.ParquetFile(path, page_checksum_verification=True)


def read_column(file: pq.ParquetFile, group: FileGroup, name: str) -> pa.ChunkedArray:
    """Read a column of a row group.

    Raises `Damaged`, also for fewer rows: the head of a page has no checksum, and pyarrow skips a page whose
    head has an unknown type.
    """
    with damage_in(group.path):
        column = file.read_row_group(group.number, [name]).column(0)
        if len(column) != group.rows:
            raise too_few(group, len(column))
    return column


def too_few(group: FileGroup, found: int) -> ValueError:
    """The error for a row group with fewer rows than its footer says."""
    return ValueError(f"row group {group.number} ends after {found} of {group.rows} rows")


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


_TEXT = _Kind(_is_text, "text or bytes", "write the table with it as text or bytes, or name another column")
_KINDS = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": _Kind(
        _is_headers,
        "a list of structs of key: text and value: bytes",
        "write the table with such headers, or leave them out: --headers-column ''",
    ),
    "pointer": _Kind(pa.types.is_int64, "int64", "a pointer is a whole number; name another column"),
    "time": _Kind(
        lambda kind: pa.types.is_int64(kind) or pa.types.is_timestamp(kind),
        "a timestamp, or int64 of microseconds since 1970",
        "write the table with it so, or name another",
    ),
}
"""The types of each of `ParquetColumns`; axis is the pointer, if it is there."""


def _check_columns(schema: pa.Schema, columns: ParquetColumns, path: str) -> None:
    """Raise ``bad_request`` unless a file has the columns, each of a type that a record can take."""
    for field, kind in _KINDS.items():
        name = getattr(columns, field)
        if name is None:
            continue
        if schema.get_all_field_indices(name) == []:
            there = ", ".join(schema.names)
            raise error("bad_request", f"{path} has no column {name!r}", f"its columns: {there}"[:500])
        found = schema.field(name).type
        if not kind.takes(found):
            raise error("bad_request", f"{path}: column {name!r} is {found}, not {kind.wanted}", kind.hint)


def _read_footer(path: Path, columns: ParquetColumns) -> FileFooter:
    with opened(str(path)) as file:
        _check_columns(file.schema_arrow, columns, str(path))
        metadata, size = file.metadata, path.stat().st_size
    groups = tuple(_groups(str(path), metadata, columns))
    return FileFooter(str(path), size, groups[-1].high if groups else 0, groups)


def _groups(path: str, metadata: pq.FileMetaData, columns: ParquetColumns) -> Iterator[FileGroup]:
    leaves = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    read = [number for number, leaf in enumerate(leaves) if leaf.partition(".")[0] in columns.read]
    time = leaves.index(columns.time) if columns.time in leaves else None
    end = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows = group.num_rows
        if rows:
            size = sum(group.column(leaf).total_uncompressed_size for leaf in read)
            end += rows
            yield FileGroup(path, number, rows, size, end - rows + 1, end, *_times(group, time))


def _times(group: pq.RowGroupMetaData, column: int | None) -> tuple[int | None, int | None]:
    """The earliest and the latest time by the statistics of a column, in microseconds."""
    found = None if column is None else group.column(column).statistics
    if found is None or not (found.has_min_max and isinstance(found.min, int | datetime)):
        return None, None
    first, last = micros(pa.array([found.min, found.max]), "", "").tolist()
    return first, last
