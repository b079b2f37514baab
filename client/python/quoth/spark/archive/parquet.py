"""The Parquet files of an archive: written in workers, in the order of pointers, a file for each day.

The columns are those of the Spark source, and the ordinal: the number of records that the topic held before
this one. Each footer has the topic, the log and the fingerprint of the records.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quoth.spark.archive import naming
from quoth.spark.archive.fingerprint import MODULUS, fingerprint
from quoth.spark.archive.manifest import ArchivedFile
from quoth.spark.atomic_files import AtomicFile, make_directory
from quoth.spark.source.arrow import TYPES, buffers_of
from quothwire.errors import error

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


class Lineage(NamedTuple):
    """The log of some records. generation: the number of the log among those of its topic."""

    topic: str
    log: int
    generation: int


class ArchiveWriter:
    """Writes records of one log to an archive's folder. After an error, the unfinished file is removed.

    written: the finished files, each synced under its name.
    """

    def __init__(self, root: Path, lineage: Lineage) -> None:
        self.written: list[ArchivedFile] = []
        self._root = root
        self._lineage = lineage
        self._file: _DayFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            if kind is None:
                self._finish(self._file)
            else:
                self._file.drop()

    def write(self, records: pa.RecordBatch) -> None:
        """Write records with the columns of `COLUMNS`, behind the records before."""
        for part in _days(records):
            day = naming.day_of(part.column("offset")[0].as_py())
            if self._file is not None and self._file.day != day:
                self._finish(self._file)
            if self._file is None:
                self._file = _DayFile(self._root, self._lineage, part)
            self._file.write(part)

    def _finish(self, file: _DayFile) -> None:
        self._file = None
        self.written.append(file.finish())


class _DayFile:
    """A file while it is written. first: its first records."""

    def __init__(self, root: Path, lineage: Lineage, first: pa.RecordBatch) -> None:
        self._root = root
        self._lineage = lineage
        self._first = self._last = first.column("offset")[0].as_py()
        self._ordinal = first.column("ordinal")[0].as_py()
        self.day = naming.day_of(self._first)
        self._rows = self._hash = self._pending_bytes = 0
        self._pending: list[pa.RecordBatch] = []
        folder = (root / self._name).parent
        for path in (folder.parent, folder):
            make_directory(path)
        self._file = AtomicFile(folder, naming.SUFFIX)
        self._writer: pq.ParquetWriter | None = None

    @property
    def _name(self) -> str:
        return naming.file_name(self._lineage.topic, self._first, self._last, self._lineage.generation)

    def write(self, records: pa.RecordBatch) -> None:
        """Take records; encodes them once they are enough for a row group."""
        self._rows += records.num_rows
        self._hash = (self._hash + fingerprint(records)) % MODULUS
        self._last = records.column("offset")[-1].as_py()
        self._pending.append(pa.RecordBatch.from_arrays(records.columns, schema=SCHEMA))
        self._pending_bytes += records.nbytes
        if self._pending_bytes >= ROW_GROUP_BYTES:
            self._encode()

    def finish(self) -> ArchivedFile:
        """Encode pending records, write the footer, and put the file in place."""
        try:
            self._encode()
            assert self._writer is not None, "there is no file without records"
            self._writer.add_key_value_metadata(self._footer())
            self._writer.close()
            size = self._file.keep(self._root / self._name)
        except BaseException:
            self.drop()
            raise
        return ArchivedFile(self._name, self._first, self._last, self._rows, size, self._ordinal, self._hash)

    def drop(self) -> None:
        """Remove the unfinished file."""
        if self._writer is not None:
            with suppress(OSError, ValueError, pa.ArrowException):  # close() writes the rest
                self._writer.close()
        self._file.close()

    def _encode(self) -> None:
        if self._pending:
            self._writer = self._writer or _writer(self._file, self._pending)
            table = pa.Table.from_batches(self._pending, SCHEMA)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._file.hand_over()
            self._pending.clear()
            self._pending_bytes = 0

    def _footer(self) -> dict[str, str]:
        topic, log, generation = self._lineage
        facts = {
            "topic": topic,
            "log": f"{log:016x}",
            "generation": generation,
            "first": self._first,
            "last": self._last,
            "rows": self._rows,
            "ordinal": self._ordinal,
            "hash": f"{self._hash:016x}",
        }
        return {f"quoth.{name}": str(value) for name, value in facts.items()}


def check_footer(root: Path, lineage: Lineage, file: ArchivedFile) -> None:
    """Compare a file's footer with the manifest.

    Raises `Damaged`; FileNotFoundError or another OSError if the file cannot be read.
    """
    path = root / file.name
    expected = {
        b"quoth.topic": lineage.topic,
        b"quoth.log": f"{lineage.log:016x}",
        b"quoth.first": str(file.first),
        b"quoth.last": str(file.last),
        b"quoth.hash": f"{file.hash:016x}",
    }
    with damage_of(path, _HINT):
        found = pq.read_metadata(path)
        said = found.metadata or {}
        if found.num_rows != file.rows or any(
            said.get(name) != text.encode() for name, text in expected.items()
        ):
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
                hashed = (hashed + fingerprint(records)) % MODULUS
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


def _writer(file: AtomicFile, first: Sequence[pa.RecordBatch]) -> pq.ParquetWriter:
    """Open a Parquet writer. first: the first records, which decide on the compression."""
    return pq.ParquetWriter(
        file.file,
        SCHEMA,
        compression=dict.fromkeys(_COMPRESSED, COMPRESSION) | {"value": _compression(first)},
        use_dictionary=["key"],
        column_encoding=_ENCODINGS,
        write_statistics=_RISING,
        write_page_checksum=True,
    )


def _compression(records: Sequence[pa.RecordBatch]) -> str:
    """Choose the compression of values: none for random or compressed ones, which zstd cannot shrink and
    would spend a twentieth of an archive's time on."""
    some = records[:: math.ceil(len(records) / SAMPLES)]
    sample = b"".join(buffers_of(one.column("value"))[1][:SAMPLE_BYTES] for one in some)
    shrinks = len(pa.Codec(COMPRESSION).compress(sample)) < SHRUNK * len(sample)
    return COMPRESSION if shrinks else "none"


def _days(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide records by day."""
    offsets = np.from_dlpack(records.column("offset"))
    start, end = 0, records.num_rows
    while start < end:
        midnight = (naming.day_of(int(offsets[start])) + 1) * naming.DAY_US
        stop = bisect_left(offsets, midnight, start, end)
        yield records.slice(start, stop - start)
        start = stop
