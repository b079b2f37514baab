"""Compaction: merges the small files of a day into few large ones, with the same records.

It reads merged files whole and compares their order and their fingerprint with the manifest. Files that are
missing, unreadable, damaged or overlapping stay unchanged, with their neighbours, and are reported. One
commit replaces the old files by the new ones. The old ones stay for a while, for readers that began with an
older manifest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from quoth.merging.selection import Selection
from quoth.spark.archive.fingerprint import total
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, Lineage, ReplacedFile
from quoth.spark.archive.naming import day_of
from quoth.spark.archive.parquet import FILE_BYTES, read_file, write_files
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.archive.verification import (
    FileFinding,
    absent,
    check_shared,
    check_written,
    finding_of,
    named_files,
    overlaps,
)
from quoth.spark.workers import Workers, perform
from quoth.timestamps import now
from quothwire.errors import Damaged, error

MERGES_A_SLOT = 4
"""Merges that each slot of the workers does before a commit."""


class FileMerge(NamedTuple):
    """Files of one log and day to be merged, in the order of their pointers."""

    lineage: Lineage
    files: tuple[ArchivedFile, ...]


@dataclass
class Compacted:
    """The counts of a compaction.

    merged: old files. files, records, bytes: of the new files. removed_files: those that do not belong to
    the archive. findings: files that are missing, unreadable, damaged or overlapping.
    """

    merged: int = 0
    files: int = 0
    records: int = 0
    bytes: int = 0
    removed_files: int = 0
    findings: list[FileFinding] = field(default_factory=list)


def compact(
    store: ArchiveStore,
    workers: Workers,
    *,
    topics: Selection = Selection("*"),  # noqa: B008
    target_bytes: int = FILE_BYTES,
    keep_replaced: float,
) -> Compacted:
    """Merge files of some topics. Only merged files are read, and can be found damaged.

    target_bytes: smaller files are merged until they have this size. keep_replaced: seconds that merged files
    stay, and unnamed files of killed runs. Raises OSError, or ``bad_request`` if a worker has another folder.
    Earlier commits stay.
    """
    done = Compacted()
    logs = [log for log in store.manifest.logs if topics.means(log.topic)]
    done.findings += absent(store.root, named_files(logs))
    done.findings += (one for log in logs for one in overlaps(log))
    bad = {one.name for one in done.findings}
    found = [one for log in logs for one in _merges(log, target_bytes)]
    merges = [one for one in found if not any(file.name in bad for file in one.files)]
    size = MERGES_A_SLOT * workers.slots
    for begin in range(0, len(merges), size):
        _replace(store, workers, merges[begin : begin + size], done)
    done.removed_files = store.sweep(keep_replaced=keep_replaced, keep_unlisted=keep_replaced)
    return done


def _merges(log: ArchivedLog, target_bytes: int) -> Iterator[FileMerge]:
    for _, files in groupby(log.files, lambda file: day_of(file.first)):
        for several in merges_of(list(files), target_bytes):
            yield FileMerge(log.lineage, tuple(several))


def _replace(store: ArchiveStore, workers: Workers, merges: list[FileMerge], done: Compacted) -> None:
    """Merge files in workers, and commit the result."""
    made = perform(workers, partial(merge, str(store.root)), merges)
    check_shared(store.root, (one for one in made if isinstance(one, FileFinding)))
    check_written(store.root, (one for one in made if not isinstance(one, FileFinding)))
    manifest, at = store.manifest, now()
    for one, file in zip(merges, made, strict=True):
        if isinstance(file, FileFinding):
            done.findings.append(file)
            continue
        log = next(log for log in manifest.logs if log.lineage == one.lineage)
        replaced = [ReplacedFile(old.name, at) for old in one.files]
        manifest = manifest.with_log(log.merged(one.files, file))
        manifest = replace(manifest, replaced=(*manifest.replaced, *replaced))
        done.merged += len(one.files)
        done.files += 1
        done.records += file.rows
        done.bytes += file.bytes
    if manifest is not store.manifest:
        store.commit(manifest)


def merges_of(files: list[ArchivedFile], target_bytes: int) -> Iterator[list[ArchivedFile]]:
    """Group the files of a day: neighbours, until they have so many bytes together."""
    several: list[ArchivedFile] = []
    for file in files:
        if file.bytes < target_bytes:
            several.append(file)
        if file.bytes >= target_bytes or sum(one.bytes for one in several) >= target_bytes:
            if len(several) > 1:
                yield several
            several = []
    if len(several) > 1:
        yield several


class _BadFile(Exception):
    """Raised while a file is read that differs from the manifest."""

    def __init__(self, finding: FileFinding) -> None:
        super().__init__(finding.text)
        self.finding = finding


def merge(root: str, part: FileMerge) -> ArchivedFile | FileFinding:
    """Merge files in a worker; returns the new file, or a finding if one differs from the manifest."""
    lineage, files = part
    try:
        [made] = write_files(Path(root), lineage, _records(Path(root), part))
    except _BadFile as bad:
        return bad.finding
    expected = sum(one.rows for one in files), total(one.hash for one in files)
    if (made.first, made.last, made.rows, made.hash) != (files[0].first, files[-1].last, *expected):
        raise error("damaged", f"{made.name} is not what its {len(files)} files were", "nothing was changed")
    return made


def _records(root: Path, part: FileMerge) -> Iterator[pa.RecordBatch]:
    """Read files one after the other. Raises `_BadFile`."""
    for file in part.files:
        try:
            yield from read_file(root, file)
        except (OSError, Damaged) as problem:
            raise _BadFile(finding_of(root, (part.lineage, file), problem)) from None
