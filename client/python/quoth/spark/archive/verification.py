"""Verifies the files of an archive against its manifest.

`absent` compares names and sizes, which each archiving and compaction does first. `verified` reads every
byte. Neither locks or changes anything.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, Lineage
from quoth.spark.archive.parquet import check_footer, read_file
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


Named = tuple[Lineage, ArchivedFile]
"""A file that the manifest names, with its log."""


def named_files(logs: Iterable[ArchivedLog]) -> list[Named]:
    """The files of logs, log by log."""
    return [(log.lineage, file) for log in logs for file in log.files]


def absent(root: Path, files: Iterable[Named]) -> list[FileFinding]:
    """The files that are missing, unreadable, or of another size than the manifest says."""
    return _findings(root, files, _check_size)


def verified(root: str, files: Iterable[Named]) -> list[FileFinding]:
    """Read files whole, in a worker; returns those that are missing, unreadable or damaged."""
    return _findings(Path(root), files, _check_all)


def require(root: Path, named: Named) -> None:
    """Compare a file's presence, size and footer with the manifest. Raises `Damaged`, OSError."""
    try:
        _check_size(root, *named)
    except FileNotFoundError as problem:
        raise error("damaged", finding_of(root, named, problem).text) from None
    check_footer(root, *named)


def finding_of(root: Path, named: Named, problem: OSError | Damaged) -> FileFinding:
    """The finding for a file that an error was raised for."""
    lineage, file = named
    path = root / file.name
    match problem:
        case FileNotFoundError():
            kind, text = "missing", f"{path}: there is no such file"
        case OSError():
            kind, text = "unreadable", f"{path}: {os.strerror(problem.errno or 0)}"
        case _:
            kind, text = "damaged", problem.text
    return FileFinding(lineage.topic, kind, file.name, file.rows, text)


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


def _findings(
    root: Path, files: Iterable[Named], check: Callable[[Path, Lineage, ArchivedFile], None]
) -> list[FileFinding]:
    found = []
    for named in files:
        try:
            check(root, *named)
        except (OSError, Damaged) as problem:
            found.append(finding_of(root, named, problem))
    return found


def _check_size(root: Path, _: Lineage, file: ArchivedFile) -> None:
    path = root / file.name
    size = path.stat().st_size
    if size != file.bytes:
        raise error("damaged", f"{path}: {size:,} bytes instead of {file.bytes:,}")


def _check_all(root: Path, lineage: Lineage, file: ArchivedFile) -> None:
    _check_size(root, lineage, file)
    check_footer(root, lineage, file)
    deque(read_file(root, file), maxlen=0)
