"""The Parquet files of an archive: written in workers, in the order of pointers, a file for each day.

The columns are those of the Spark source, and the ordinal: the number of records that the topic held before
this one. Each footer has the topic, the log and the fingerprint of the records.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quoth.spark.archive import naming
from quoth.spark.archive.fingerprint import fingerprint, total
from quoth.spark.archive.manifest import ArchivedFile, Lineage
from quoth.spark.atomic_files import AtomicFile, make_directory
from quoth.spark.source.arrow import TYPES, buffers_of
from quothwire.errors import error

FILE_BYTES = 128 * 2**20
"""Stored bytes for one file: a usual size for readers of Parquet, and some seconds of work for a task."""
COLUMNS = ("offset", "timestamp", "key", "value", "headers", "ordinal")
_ALWAYS = ("offset", "timestamp", "value", "ordinal")
SCHEMA = pa.schema([pa.field(name, TYPES[name], nullable=name not in _ALWAYS) for name in COLUMNS])
COMPRESSION = "zstd"
_COMPRESSED = [name for name in COLUMNS if name not in ("value", "headers")] + [
    f"headers.list.element.{name}" for name in ("key", "value")
]
"""The columns that are always compressed; values are if that shrinks them."""
SAMPLES, SAMPLE_BYTES = 16, 16 * 2**10
"""The number and the size of samples of a file's first row group that decide on the compression of values."""
SHRUNK = 0.95
"""Values are compressed if zstd makes the samples smaller than this part of them."""
ROW_GROUP_BYTES = 32 * 2**20
"""Bytes before encoding: a writer holds so many in memory, and a reader reads so many at once."""
_RISING = ["offset", "timestamp", "ordinal"]
"""The columns with statistics, by which a query can skip row groups."""
_ENCODINGS = {**dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"), "value": "DELTA_LENGTH_BYTE_ARRAY"}
"""DELTA_LENGTH_BYTE_ARRAY keeps lengths apart from bytes: incompressible values take two thirds of the
time."""
_HINT = "nothing was changed; put a copy of the file back"


def write_files(root: Path, lineage: Lineage, records: Iterable[pa.RecordBatch]) -> list[ArchivedFile]:
    """Write records of one log to an archive's folder, a file for each day; each is synced under its name.

    records: with the columns of `COLUMNS`, in the order of their pointers. After an error, the unfinished
    file is removed.
    """
    days = groupby(_split_by_day(records), key=lambda part: naming.day_of(_first(part, "offset")))
    return [_write_file(root, lineage, parts) for _, parts in days]


def _write_file(root: Path, lineage: Lineage, parts: Iterator[pa.RecordBatch]) -> ArchivedFile:
    """Write records of one day."""
    part = next(parts)
    first, ordinal = _first(part, "offset"), _first(part, "ordinal")
    folder = root / naming.folder_of(lineage.topic, first)
    for path in (folder.parent, folder):
        make_directory(path)
    rows = hashed = 0
    last = first
    parts = chain([part], parts)
    del part  # like each row group, it is not kept while the next one is gathered
    with AtomicFile(folder, naming.SUFFIX) as file, ExitStack() as opened:
        writer = None
        for group in _row_groups(parts):
            writer = writer or opened.enter_context(_parquet_writer(file, _compression(group)))
            table = pa.Table.from_batches(group, SCHEMA)
            writer.write_table(table, row_group_size=table.num_rows)
            file.hand_over()
            rows += table.num_rows
            hashed = total([hashed, *map(fingerprint, group)])
            last = group[-1].column("offset")[-1].as_py()
            del group, table
        assert writer is not None, "there is no file without records"
        name = naming.file_name(lineage.topic, first, last, lineage.generation)
        made = ArchivedFile(name, first, last, rows, 0, ordinal, hashed)
        writer.add_key_value_metadata(_footer(lineage, made))
        writer.close()
        return made._replace(bytes=file.keep(root / name))


def _footer(lineage: Lineage, file: ArchivedFile) -> dict[str, str]:
    facts = {
        "topic": lineage.topic,
        "log": f"{lineage.log:016x}",
        "generation": lineage.generation,
        "first": file.first,
        "last": file.last,
        "rows": file.rows,
        "ordinal": file.ordinal,
        "hash": f"{file.hash:016x}",
    }
    return {f"quoth.{name}": str(value) for name, value in facts.items()}


def check_footer(root: Path, lineage: Lineage, file: ArchivedFile) -> None:
    """Compare a file's footer with the manifest.

    Raises `Damaged`; FileNotFoundError or another OSError if the file cannot be read.
    """
    path = root / file.name
    with damage_of(path, _HINT):
        found = pq.read_metadata(path)
        expected = {name.encode(): text.encode() for name, text in _footer(lineage, file).items()}
        if found.num_rows != file.rows or not expected.items() <= (found.metadata or {}).items():
            raise ValueError("its footer does not say what the manifest says of it")


def read_file(root: Path, file: ArchivedFile) -> Iterator[pa.RecordBatch]:
    """Read the records of a file, in the order of their pointers.

    Raises `Damaged`, at the end if they differ from the manifest; FileNotFoundError or another OSError if the
    file cannot be read.
    """
    path = root / file.name
    rows, hashed, last, ordinal = 0, 0, file.first - 1, file.ordinal - 1
    with damage_of(path, _HINT), pq.ParquetFile(path, page_checksum_verification=True) as opened:
        if not opened.schema_arrow.equals(SCHEMA):
            raise ValueError("its columns are not those of an archive")
        for number in range(opened.num_row_groups):  # one at a time, which bounds the memory
            for records in opened.read_row_group(number, list(COLUMNS)).to_batches():
                _check_order(records, last, ordinal)
                last, ordinal = (records.column(name)[-1].as_py() for name in ("offset", "ordinal"))
                rows += records.num_rows
                hashed = total([hashed, fingerprint(records)])
                yield records
        if (rows, hashed) != (file.rows, file.hash):
            raise ValueError(f"its {rows} rows are not the {file.rows} that the manifest says")
        if last != file.last:
            raise ValueError(f"it ends at {last} instead of {file.last}")
        if naming.day_of(file.first) != naming.day_of(last):
            raise ValueError("its records are of more than one day")


@contextmanager
def damage_of(path: Path | str, hint: str) -> Iterator[None]:
    """Raise `Damaged` for an invalid Parquet file; errors of the file system pass unchanged."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise error("damaged", f"{path}: {problem}", hint) from None  # Arrow: OSError for a wrong checksum


def _check_order(records: pa.RecordBatch, last: int, ordinal: int) -> None:
    """Raise ValueError unless pointers and ordinals rise from the last ones before."""
    offsets, ordinals = (np.from_dlpack(records.column(name)) for name in ("offset", "ordinal"))
    times = np.from_dlpack(records.column("timestamp").cast(pa.int64()))
    if (np.diff(offsets, prepend=last) <= 0).any():
        raise ValueError("its pointers do not rise from the first one of the manifest")
    if (np.diff(ordinals, prepend=ordinal) <= 0).any():
        raise ValueError("its ordinals do not rise from the first one of the manifest")
    if (times != offsets).any():
        raise ValueError("a time is not that of its pointer")


@contextmanager
def _parquet_writer(file: AtomicFile, compression: str) -> Iterator[pq.ParquetWriter]:
    """Open a Parquet writer. compression: of values."""
    writer = pq.ParquetWriter(
        file.file,
        SCHEMA,
        compression=dict.fromkeys(_COMPRESSED, COMPRESSION) | {"value": compression},
        use_dictionary=["key"],
        column_encoding=_ENCODINGS,
        write_statistics=_RISING,
        write_page_checksum=True,
    )
    try:
        yield writer
    finally:
        with suppress(OSError, ValueError, pa.ArrowException):  # after an error it writes the rest
            writer.close()


def _compression(records: Sequence[pa.RecordBatch]) -> str:
    """Choose the compression of values: none for random or compressed ones, which zstd cannot shrink and
    would spend a twentieth of an archive's time on."""
    some = records[:: math.ceil(len(records) / SAMPLES)]
    sample = b"".join(buffers_of(one.column("value"))[1][:SAMPLE_BYTES] for one in some)
    shrinks = len(pa.Codec(COMPRESSION).compress(sample)) < SHRUNK * len(sample)
    return COMPRESSION if shrinks else "none"


def _row_groups(parts: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Group records into row groups."""
    group: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        group.append(pa.RecordBatch.from_arrays(part.columns, schema=SCHEMA))
        size += part.nbytes
        if size >= ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _split_by_day(records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut records at midnight."""
    for batch in records:
        offsets = np.from_dlpack(batch.column("offset"))
        start = 0
        while start < len(offsets):
            midnight = (naming.day_of(int(offsets[start])) + 1) * naming.DAY_US
            stop = bisect_left(offsets, midnight, start)
            yield batch.slice(start, stop - start)
            start = stop


def _first(records: pa.RecordBatch, column: str) -> int:
    return int(records.column(column)[0].as_py())
