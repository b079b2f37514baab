"""Compaction: the small files of a day become few large ones, with the same records.

What is merged is read whole on the way, and its order and its fingerprint have to be what the manifest says.
Files that are missing, unreadable, damaged or overlapping stay as they are, with their neighbours, and are
reported. One commit puts the new files in the place of the old ones; those stay for a while, for readers that
have begun by the manifest before.
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
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, Replaced
from quoth.spark.archive.naming import day_of
from quoth.spark.archive.parquet import ArchiveWriter, Lineage
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.archive.verification import (
    Bad,
    Finding,
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
"""How many merges each slot of the workers does before a commit."""


class Merge(NamedTuple):
    """Files of one log and day that become one, in the order of their pointers."""

    lineage: Lineage
    files: tuple[ArchivedFile, ...]


@dataclass
class Compacted:
    """What was done: files that were merged, those that they became with their bytes, records in them, files
    that were no part of the archive any more and were removed.

    findings: files that are missing, unreadable, damaged or overlapping.
    """

    merged: int = 0
    files: int = 0
    records: int = 0
    bytes: int = 0
    removed: int = 0
    findings: list[Finding] = field(default_factory=list)


class Compactor:
    """Compacts an archive. Belongs to one thread.

    target_bytes: a file of this size is left alone, and smaller ones are merged until they have it.
    keep_replaced: seconds that the merged files stay, and that strays of killed runs do.
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
        """Merge what can be merged. Raises OSError; commits before that stay.

        Raises ``bad_request`` if a worker has another folder. What is wrong is in `done.findings`. Only files
        that are merged are read for that; of all others the presence and the size are looked at.
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
        self.done.removed += self._store.sweep(
            keep_replaced=self._keep_replaced, keep_strays=self._keep_replaced
        )

    def _merges(self, log: ArchivedLog) -> Iterator[Merge]:
        lineage = Lineage(log.topic, log.log, log.generation)
        for _, files in groupby(log.files, lambda file: day_of(file.first)):
            for several in merges_of(list(files), self._target_bytes):
                yield Merge(lineage, tuple(several))

    def _replace(self, merges: list[Merge]) -> None:
        made = perform(self._workers, partial(merge, str(self._store.root)), merges)
        check_shared(self._store.root, (one for one in made if isinstance(one, Finding)))
        check_written(self._store.root, (one for one in made if not isinstance(one, Finding)))
        manifest, at = self._store.manifest, now()
        for one, file in zip(merges, made, strict=True):
            if isinstance(file, Finding):
                self.done.findings.append(file)
                continue
            lineage = one.lineage
            log = next(log for log in manifest.logs if (log.topic, log.log) == lineage[:2])
            replaced = [Replaced(old.name, at) for old in one.files]
            manifest = manifest.with_log(log.merged({file: one.files}))
            manifest = replace(manifest, replaced=(*manifest.replaced, *replaced))
            self.done.merged += len(one.files)
            self.done.files += 1
            self.done.records += file.rows
            self.done.bytes += file.bytes
        if manifest is not self._store.manifest:
            self._store.commit(manifest)


def merges_of(files: list[ArchivedFile], target_bytes: int) -> Iterator[list[ArchivedFile]]:
    """Which files of a day become one: neighbours, until they have so many bytes together."""
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


def merge(root: str, part: Merge) -> ArchivedFile | Finding:
    """The work of a task: files as one, or the one of them that is not what the manifest says."""
    try:
        with ArchiveWriter(Path(root), part.lineage) as writer:
            for file in part.files:
                for records in read_named(Path(root), part.lineage, file):
                    writer.write(records)
    except Bad as bad:
        return bad.finding
    [made] = writer.written
    files = part.files
    expected = (
        files[0].first,
        files[-1].last,
        sum(one.rows for one in files),
        total(one.hash for one in files),
    )
    if (made.first, made.last, made.rows, made.hash) != expected:
        raise error("damaged", f"{made.name} is not what its {len(files)} files were", "nothing was changed")
    return made
