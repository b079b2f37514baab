"""Verifies the files of an archive against its manifest: are they there, and do they hold what it says.

Two depths: `absent` asks the file system for names and sizes, which each archiving and compaction does first;
`verified` reads every byte. Nothing is locked and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog
from quoth.spark.archive.parquet import Lineage, check_footer, read_file
from quothwire.errors import Damaged


class Finding(NamedTuple):
    """A file that is not what the manifest says, or two that contradict each other.

    kind: ``missing``, ``damaged`` or ``manifest``. rows: how many records the manifest says that it holds.
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
    return [(Lineage(log.topic, log.log, log.generation), file) for log in logs for file in log.files]


def absent(root: Path, files: Iterable[Named]) -> list[Finding]:
    """The files that are missing or have another size than the manifest says."""
    return [found for lineage, file in files if (found := _absent(root, lineage, file)) is not None]


def verified(root: str, files: Iterable[Named]) -> list[Finding]:
    """The files that are missing or damaged, each of them read whole. It is the work of a task."""
    found = (_verified(Path(root), lineage, file) for lineage, file in files)
    return [one for one in found if one is not None]


def damaged(lineage: Lineage, file: ArchivedFile, text: str) -> Finding:
    """The finding for a file that does not hold what the manifest says."""
    return Finding(lineage.topic, "damaged", file.name, file.rows, text)


def contradictions(log: ArchivedLog) -> Iterator[Finding]:
    """What cannot be true of a log's files together: overlaps, more missing records than were lost."""
    if not log.files:
        return
    missing, newest = 0, log.files[-1]
    for one, other in zip(log.files, log.files[1:], strict=False):
        between = other.ordinal - one.ordinal - one.rows
        missing += max(0, between)
        if one.last >= other.first or between < 0:
            text = f"{one.name} overlaps {other.name}"
            yield Finding(log.topic, "manifest", one.name, one.rows, text)
    missing += log.ordinal - newest.ordinal - newest.rows
    if missing > log.lost:
        text = f"{missing:,} records of {log.topic!r} are in no file, and {log.lost:,} were lost"
        yield Finding(log.topic, "manifest", newest.name, missing - log.lost, text)


def _absent(root: Path, lineage: Lineage, file: ArchivedFile) -> Finding | None:
    path = root / file.name
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return Finding(lineage.topic, "missing", file.name, file.rows, f"{path}: there is no such file")
    except OSError as problem:
        return damaged(lineage, file, f"{path}: {problem.strerror}")
    if size != file.bytes:
        return damaged(lineage, file, f"{path}: {size:,} bytes instead of {file.bytes:,}")
    return None


def _verified(root: Path, lineage: Lineage, file: ArchivedFile) -> Finding | None:
    found = _absent(root, lineage, file)
    if found is not None:
        return found
    try:
        check_footer(root, lineage, file)
        last, ordinal, wrong = file.first - 1, file.ordinal - 1, ""
        for records in read_file(root, file):
            wrong = wrong or _disorder(records, last, ordinal)
            last, ordinal = (records.column(name)[-1].as_py() for name in ("offset", "ordinal"))
    except Damaged as problem:
        return damaged(lineage, file, problem.text)
    wrong = wrong or ("" if last == file.last else f"it ends at {last} instead of {file.last}")
    return damaged(lineage, file, f"{root / file.name}: {wrong}") if wrong else None


def _disorder(records: pa.RecordBatch, last: int, ordinal: int) -> str:
    """What is wrong with the order of records behind a pointer and an ordinal, nothing if it is right."""
    offsets, ordinals = (np.from_dlpack(records.column(name)) for name in ("offset", "ordinal"))
    times = np.from_dlpack(records.column("timestamp").cast(pa.int64()))
    if (np.diff(offsets, prepend=last) <= 0).any():
        return "its pointers do not rise from the first one of the manifest"
    if (np.diff(ordinals, prepend=ordinal) <= 0).any():
        return "its ordinals do not rise from the first one of the manifest"
    return "" if (times == offsets).all() else "a time is not that of its pointer"
