"""The folder of an archive: one program at a time writes to it, and replaces the manifest commit by commit.

The lock is flock(2), which NFS 4 keeps between machines. Where it is not kept, a commit that does not follow
the commit it began with is refused, so that only two commits at the same moment could overwrite each other. A
rename replaces the manifest, which is atomic on local file systems and NFS, but not in object stores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from quoth.core.options import as_seconds
from quoth.filelock import FileLock
from quoth.spark.archive import manifest as manifests
from quoth.spark.archive import naming
from quoth.spark.archive.manifest import ArchivedLog, ArchiveManifest
from quoth.spark.atomic_files import AtomicFile, make_directory
from quoth.timestamps import now
from quothwire.closing import Closeable
from quothwire.errors import error

UNLISTED_S = 3_600.0
"""Seconds that a file without a name in the manifest stays: no task writes that long."""


def read_manifest(root: Path) -> ArchiveManifest:
    """Read the present manifest. Raises FileNotFoundError if there is none, or `Damaged`."""
    path = root / manifests.NAME
    return manifests.decoded(path.read_bytes(), str(path))


class ArchiveStore(Closeable):
    """An archive that is locked for writing. Belongs to one thread; close it, or use it as a context manager.

    root: its folder, which is created. Raises `Conflict` ``locked`` while another program has it, `Damaged`
    for a damaged manifest, or OSError.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        make_directory(root)
        self._lock = FileLock(root / manifests.NAME)
        with self._lock.opening():
            self.manifest = self._read()

    def close(self) -> None:
        """Release the lock. Does nothing the second time."""
        self._lock.release()

    def log_of(self, topic: str, log: int) -> ArchivedLog:
        """The archived part of a topic's log; a new generation if the topic had another log before."""
        newest = self.manifest.newest(topic)
        if newest is not None and newest.log == log:
            return newest
        return ArchivedLog(topic, log, 1 if newest is None else newest.generation + 1)

    def commit(self, manifest: ArchiveManifest) -> None:
        """Replace the manifest, durably.

        Raises `Conflict` ``locked`` if another program has replaced it meanwhile, or OSError; then the
        archive has the old manifest or the new one.
        """
        if self._read().commit != self.manifest.commit:
            raise error(
                "locked",
                f"{self.root} was changed by another program meanwhile",
                "nothing was changed; does this file system keep locks between machines? "
                "Let one program at a time go on with an archive",
            )
        number = self.manifest.commit + 1
        with AtomicFile(self.root, manifests.NAME) as new:
            new.file.write(manifest.encoded(number))
            new.keep(self.root / manifests.NAME)
        self.manifest = replace(manifest, commit=number)

    def sweep(self, *, keep_replaced: float, keep_unlisted: float = UNLISTED_S) -> int:
        """Remove files that do not belong to the archive; returns their number.

        keep_replaced: seconds that files replaced by a compaction stay. keep_unlisted: seconds that unlisted
        files of killed runs stay. Raises ``bad_request`` for what is not a number of seconds.
        """
        oldest = now() - round(as_seconds(keep_replaced, "keep_replaced") * 1e6)
        due = {one for one in self.manifest.replaced if one.at <= oldest}
        kept = tuple(one for one in self.manifest.replaced if one not in due)
        gone = [*(one.name for one in due), *self._unlisted(keep_unlisted)]
        removed = 0
        for name in gone:
            with suppress(FileNotFoundError):
                (self.root / name).unlink()
                removed += 1
        self.manifest = replace(self.manifest, replaced=kept)  # for the next commit
        return removed

    def _read(self) -> ArchiveManifest:
        try:
            return read_manifest(self.root)
        except FileNotFoundError:
            return ArchiveManifest()

    def _unlisted(self, seconds: float) -> Iterator[str]:
        """Files of an archive that the manifest does not name, older than so many seconds."""
        known = {file.name for log in self.manifest.logs for file in log.files}
        known.update(one.name for one in self.manifest.replaced)
        before = time.time() - as_seconds(seconds, "keep_unlisted")
        for path in list(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            with suppress(FileNotFoundError):  # a task that outlived its driver has removed it
                if name not in known and naming.is_ours(name) and path.stat().st_mtime <= before:
                    yield name
