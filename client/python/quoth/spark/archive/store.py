"""An archive's folder: one program at a time goes on with it, and replaces the manifest commit by commit.

The lock is flock(2). A network file system keeps it between machines if it is NFS 4, or says that it does;
where it does not, a commit is still refused that does not follow the one which it began with, so that only
two commits within the same moment could take each other's place. A manifest is replaced by a rename, which
local file systems and NFS do atomically; stores of objects do not, so an archive is a path.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from quoth.core.closeable import Closeable
from quoth.core.deadline import as_seconds
from quoth.filelock import FileLock
from quoth.spark.archive import manifest as manifests
from quoth.spark.archive import naming
from quoth.spark.archive.manifest import ArchivedLog, Manifest
from quoth.spark.atomic_files import Draft, make_directory
from quoth.timestamps import now
from quothlog.storage.filesystem import TEMPORARY_SUFFIX
from quothwire.errors import error

STRAY_S = 3_600.0
"""How old a file is, that the manifest does not name, before a run removes it: nobody writes that long."""


def read_manifest(root: Path) -> Manifest:
    """What an archive consists of now. Raises FileNotFoundError if there is none, or `Damaged`."""
    path = root / manifests.NAME
    return manifests.decoded(path.read_bytes(), str(path))


class ArchiveStore(Closeable):
    """The one who goes on with an archive. Belongs to one thread; to be closed, or used as a context manager.

    root: its folder, which is made. Raises `Conflict` ``locked`` while another one goes on with it, `Damaged`
    for a manifest that does not check, or OSError.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        make_directory(root)
        self._lock = FileLock(root / manifests.NAME)
        with self._lock.opening():
            self.manifest = self._read()

    def close(self) -> None:
        """Let others go on with it. Does nothing the second time."""
        self._lock.release()

    def log_of(self, topic: str, log: int) -> ArchivedLog:
        """What is archived of a topic's log; a new generation if that is another one than before."""
        newest = self.manifest.newest(topic)
        if newest is not None and newest.log == log:
            return newest
        return ArchivedLog(topic, log, 1 if newest is None else newest.generation + 1)

    def commit(self, manifest: Manifest) -> None:
        """Put a manifest in the place of the one that is there, durably: then it is true.

        Raises `Conflict` ``locked`` if somebody else has replaced that meanwhile, or OSError; in both cases
        the archive is as it was, or as it should be.
        """
        if self._read().commit != self.manifest.commit:
            raise error(
                "locked",
                f"{self.root} was changed by another program meanwhile",
                "nothing was changed; does this file system keep locks between machines? "
                "Let one program at a time go on with an archive",
            )
        number = self.manifest.commit + 1
        with Draft(self.root, manifests.NAME) as draft:
            draft.file.write(manifest.encoded(number))
            draft.keep(self.root / manifests.NAME)
        self.manifest = replace(manifest, commit=number)

    def sweep(self, *, keep_replaced: float, keep_strays: float = STRAY_S) -> int:
        """Remove files that are no part of the archive; returns how many.

        keep_replaced: seconds that what compaction has replaced stays for those who read it. keep_strays:
        the same for what a run has left that was killed. Raises ``bad_request`` for what are no seconds.
        """
        oldest = now() - round(as_seconds(keep_replaced, "keep_replaced") * 1e6)
        due = {one for one in self.manifest.replaced if one.at <= oldest}
        kept = tuple(one for one in self.manifest.replaced if one not in due)
        gone = [*(one.name for one in due), *self._strays(keep_strays)]
        removed = sum(self._remove(name) for name in gone)
        self.manifest = replace(self.manifest, replaced=kept)  # as the next commit says
        return removed

    def _read(self) -> Manifest:
        try:
            return read_manifest(self.root)
        except FileNotFoundError:
            return Manifest()

    def _strays(self, seconds: float) -> Iterator[str]:
        """Files of ours that nothing knows of, unless they are younger than so many seconds."""
        known = {file.name for file in self.manifest.files(lambda _: True)}
        known.update(one.name for one in self.manifest.replaced)
        before = time.time() - as_seconds(seconds, "keep_strays")
        for pattern in (
            f"topic=*/day=*/*{naming.SUFFIX}",
            f"topic=*/day=*/.*{TEMPORARY_SUFFIX}",
            f".*{TEMPORARY_SUFFIX}",
        ):
            for path in list(self.root.glob(pattern)):
                name = path.relative_to(self.root).as_posix()
                with suppress(FileNotFoundError):  # a task that outlived its driver has dropped its draft
                    if name not in known and naming.is_ours(name) and path.stat().st_mtime <= before:
                        yield name

    def _remove(self, name: str) -> bool:
        try:
            (self.root / name).unlink()
        except FileNotFoundError:
            return False
        return True
