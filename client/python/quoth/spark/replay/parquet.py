"""Parquet files as a replay reads them: what is wrong with one is told with its name, and costs its chunk."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from quothwire.errors import QuothError, error

LEFT_OUT = "nothing of its chunk was published; put a copy of the file back and run it again"


def opened(path: str) -> pq.ParquetFile:
    """Open a file; its pages are checked if they have checksums. Raises FileNotFoundError or `Damaged`."""
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as problem:
        raise damaged(path, problem) from None


def read_column(file: pq.ParquetFile, path: str, number: int, rows: int, name: str) -> pa.ChunkedArray:
    """A column of a row group that has so many rows.

    Raises `Damaged`, also where fewer rows are found: the head of a page has no checksum, and pyarrow leaves
    out a page whose head names a kind that it does not know.
    """
    try:
        column = file.read_row_group(number, [name]).column(0)
    except (OSError, pa.ArrowException) as problem:
        raise damaged(path, problem) from None
    if len(column) != rows:
        raise damaged(path, too_few(number, len(column), rows))
    return column


def too_few(number: int, found: int, rows: int) -> ValueError:
    """What is wrong with a row group of which fewer rows are found than its footer says."""
    return ValueError(f"row group {number} ends after {found} of {rows} rows")


def damaged(path: str, problem: Exception) -> QuothError:
    """The error of a file that cannot be read."""
    return error("damaged", f"{path}: {problem}", LEFT_OUT)
