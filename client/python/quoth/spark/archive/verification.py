"""Verifies the files of an archive against its manifest.

`absent` compares names and sizes, which each archiving and compaction does first. `verified` reads every
byte. Neither locks or changes anything.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog
from quoth.spark.archive.parquet import Lineage, check_footer, read_file
from quothwire.errors import Damaged, error

ONE_FOLDER = "all workers and the driver need the same folder: use a shared file system"


class FileFinding(NamedTuple):
    """A file that differs from the manifest, or two files that contradict each other.

    kind: ``missing``, ``damaged``, ``unreadable`` (the file system refuses to read it) or ``manifest``. rows:
    the number of its records in the manifest.
    """

    topic: str
    kind: str
    name: str
    rows: int
    text: str


class BadFile(Exception):
    """Raised by `read_named` for a file that differs from the manifest."""

    def __init__(self, finding: FileFinding) -> None:
        super().__init__(finding.text)
        self.finding = finding


Named = tuple[Lineage, ArchivedFile]
"""A file that the manifest names, with its log."""


def named_files(logs: Iterable[ArchivedLog]) -> list[Named]:
    """The files of logs, log by log."""
    return [(Lineage(log.topic, log.log, log.generation), file) for log in logs for file in log.files]


def absent(root: Path, files: Iterable[Named]) -> list[FileFinding]:
    """The files that are missing, unreadable, or of another size than the manifest says."""
    return [found for lineage, file in files for found in _absent(root, lineage, file)]


def require(root: Path, named: Named) -> None:
    """Compare a file's presence, size and footer with the manifest. Raises `Damaged`, OSError."""
    for found in absent(root, [named]):
        if found.kind != "unreadable":
            raise error("damaged", found.text)
    check_footer(root, *named)


def verified(root: str, files: Iterable[Named]) -> list[FileFinding]:
    """Read files whole, in a worker; returns those that are missing, unreadable or damaged."""
    return [found for lineage, file in files for found in _verified(Path(root), lineage, file)]


def read_named(root: Path, lineage: Lineage, file: ArchivedFile) -> Iterator[pa.RecordBatch]:
    """Read the records of a file, in the order of their pointers. Raises `BadFile`."""
    try:
        yield from read_file(root, file)
    except (OSError, Damaged) as problem:
        raise BadFile(_finding(root, lineage, file, problem)) from None


def check_shared(root: Path, findings: Iterable[FileFinding]) -> None:
    """Raise ``bad_request`` if this process sees a file that a worker reports as missing."""
    for one in findings:
        if one.kind == "missing" and (root / one.name).is_file():
            what = f"a worker does not find {one.name} in {root}, and it is there on the driver"
            raise error("bad_request", what, ONE_FOLDER)


def check_written(root: Path, files: Iterable[ArchivedFile]) -> None:
    """Raise ``bad_request`` if this process does not see a file that a worker has written."""
    for file in files:
        if not (root / file.name).is_file():
            what = f"a worker has written {file.name}, and it is not in {root} here"
            raise error("bad_request", what, ONE_FOLDER)


def overlaps(log: ArchivedLog) -> Iterator[FileFinding]:
    """The files of a log whose records do not lie before those of the next file."""
    for one, other in pairwise(log.files):
        if one.last >= other.first or other.ordinal < one.ordinal + one.rows:
            text = f"{one.name} overlaps {other.name}"
            yield FileFinding(log.topic, "manifest", one.name, one.rows, text)


def contradictions(log: ArchivedLog) -> Iterator[FileFinding]:
    """Contradictions among the files of a log: overlaps, and more missing records than were lost."""
    if not log.files:
        return
    yield from overlaps(log)
    newest = log.files[-1]
    missing = log.ordinal - newest.ordinal - newest.rows
    missing += sum(max(0, other.ordinal - one.ordinal - one.rows) for one, other in pairwise(log.files))
    if missing > log.lost:
        text = f"{missing:,} records of {log.topic!r} are in no file, and {log.lost:,} were lost"
        yield FileFinding(log.topic, "manifest", newest.name, missing - log.lost, text)


def _finding(root: Path, lineage: Lineage, file: ArchivedFile, problem: OSError | Damaged) -> FileFinding:
    """The finding for a file that an error was raised for."""
    path = root / file.name
    match problem:
        case FileNotFoundError():
            kind, text = "missing", f"{path}: there is no such file"
        case OSError():
            kind, text = "unreadable", f"{path}: {os.strerror(problem.errno or 0)}"
        case _:
            kind, text = "damaged", problem.text
    return FileFinding(lineage.topic, kind, file.name, file.rows, text)


def _absent(root: Path, lineage: Lineage, file: ArchivedFile) -> list[FileFinding]:
    path = root / file.name
    try:
        size = path.stat().st_size
    except OSError as problem:
        return [_finding(root, lineage, file, problem)]
    if size == file.bytes:
        return []
    text = f"{path}: {size:,} bytes instead of {file.bytes:,}"
    return [FileFinding(lineage.topic, "damaged", file.name, file.rows, text)]


def _verified(root: Path, lineage: Lineage, file: ArchivedFile) -> list[FileFinding]:
    found = _absent(root, lineage, file)
    try:
        if not found:
            check_footer(root, lineage, file)
            deque(read_file(root, file), maxlen=0)
    except (OSError, Damaged) as problem:
        return [_finding(root, lineage, file, problem)]
    return found
