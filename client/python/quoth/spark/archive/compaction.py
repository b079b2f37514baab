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

from quoth.merging.selection import Selection
from quoth.spark.archive.fingerprint import total
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, ReplacedFile
from quoth.spark.archive.naming import day_of
from quoth.spark.archive.parquet import ArchiveWriter, Lineage
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.archive.verification import (
    BadFile,
    FileFinding,
    absent,
    check_shared,
    check_written,
    named_files,
    overlaps,
    read_named,
)
from quoth.spark.workers import Workers, perform
from quoth.timestamps import now
from quothwire.errors import error

TARGET_BYTES = 128 * 2**20
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


class Compactor:
    """Compacts an archive. Belongs to one thread.

    target_bytes: smaller files are merged until they have this size. keep_replaced: seconds that merged files
    stay, and unnamed files of killed runs.
    """

    def __init__(
        self,
        store: ArchiveStore,
        workers: Workers,
        *,
        topics: Selection = Selection("*"),  # noqa: B008
        target_bytes: int = TARGET_BYTES,
        keep_replaced: float,
    ) -> None:
        self.done = Compacted()
        self._store = store
        self._workers = workers
        self._topics = topics
        self._target_bytes = target_bytes
        self._keep_replaced = keep_replaced

    def run(self) -> None:
        """Merge files. `done.findings` has those that are missing or wrong; only merged files are read for
        that.

        Raises OSError, or ``bad_request`` if a worker has another folder. Earlier commits stay.
        """
        logs = [log for log in self._store.manifest.logs if self._topics.means(log.topic)]
        self.done.findings += absent(self._store.root, named_files(logs))
        self.done.findings += (one for log in logs for one in overlaps(log))
        bad = {one.name for one in self.done.findings}
        found = [one for log in logs for one in self._merges(log)]
        merges = [one for one in found if not any(file.name in bad for file in one.files)]
        size = MERGES_A_SLOT * self._workers.slots
        for begin in range(0, len(merges), size):
            self._replace(merges[begin : begin + size])
        self.done.removed_files += self._store.sweep(
            keep_replaced=self._keep_replaced, keep_strays=self._keep_replaced
        )

    def _merges(self, log: ArchivedLog) -> Iterator[FileMerge]:
        lineage = Lineage(log.topic, log.log, log.generation)
        for _, files in groupby(log.files, lambda file: day_of(file.first)):
            for several in merges_of(list(files), self._target_bytes):
                yield FileMerge(lineage, tuple(several))

    def _replace(self, merges: list[FileMerge]) -> None:
        made = perform(self._workers, partial(merge, str(self._store.root)), merges)
        check_shared(self._store.root, (one for one in made if isinstance(one, FileFinding)))
        check_written(self._store.root, (one for one in made if not isinstance(one, FileFinding)))
        manifest, at = self._store.manifest, now()
        for one, file in zip(merges, made, strict=True):
            if isinstance(file, FileFinding):
                self.done.findings.append(file)
                continue
            lineage = one.lineage
            log = next(log for log in manifest.logs if (log.topic, log.log) == lineage[:2])
            replaced = [ReplacedFile(old.name, at) for old in one.files]
            manifest = manifest.with_log(log.merged({file: one.files}))
            manifest = replace(manifest, replaced=(*manifest.replaced, *replaced))
            self.done.merged += len(one.files)
            self.done.files += 1
            self.done.records += file.rows
            self.done.bytes += file.bytes
        if manifest is not self._store.manifest:
            self._store.commit(manifest)


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


def merge(root: str, part: FileMerge) -> ArchivedFile | FileFinding:
    """Merge files in a worker; returns the new file, or a finding if one differs from the manifest."""
    try:
        with ArchiveWriter(Path(root), part.lineage) as writer:
            for file in part.files:
                for records in read_named(Path(root), part.lineage, file):
                    writer.write(records)
    except BadFile as bad:
        return bad.finding
    [made] = writer.written
    files = part.files
    expected = sum(one.rows for one in files), total(one.hash for one in files)
    if (made.first, made.last, made.rows, made.hash) != (files[0].first, files[-1].last, *expected):
        raise error("damaged", f"{made.name} is not what its {len(files)} files were", "nothing was changed")
    return made
