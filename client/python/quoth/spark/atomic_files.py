"""Files that are written under a temporary name and renamed: whole under their names, or absent."""

from __future__ import annotations

import errno
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path

from quothlog.storage.filesystem import TEMPORARY_SUFFIX, PosixFileSystem, durable_names, sync_directory
from quothwire.closing import Closeable
from quothwire.errors import error
from quothwire.text.paths import given_path

_DISK = PosixFileSystem()


def local_path(folder: str | Path) -> Path:
    """Return the folder of an archive or a checkpoint. Raises ``bad_request`` for what is not a path."""
    text = os.fspath(folder).removeprefix("file://")
    if "://" in text:
        raise error(
            "bad_request",
            f"{folder} is no path",
            "it has to be a folder of a local or a shared file system: its files are put in place by a "
            "rename, which stores of objects do not do atomically",
        )
    return given_path(text, "the folder").absolute()


def make_directory(path: Path) -> None:
    """Make a directory and its parents, each durable in its own parent, with the usual rights."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
    with suppress(PermissionError):  # even if it exists: a process that died may have made it without this
        sync_directory(_DISK, path.parent)


def refuse_existing(path: str | Path | None) -> None:
    """Raise FileExistsError for a path that exists, ``bad_setting`` for an empty one. None is no output."""
    if path is not None and os.path.exists(given_path(path, "the output")):
        raise FileExistsError(errno.EEXIST, "it exists already, and nothing was written", str(path))


class AtomicFile(Closeable):
    """A temporary file that `keep` renames; `close` removes it otherwise. `file` is open to write.

    Its name begins with a dot, so that readers of Parquet ignore it, and is random, so that two processes
    that write the same file do not disturb each other.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        """Create it. kind: the end of its name, in front of the suffix of temporary files."""
        self._path = folder / f".{secrets.token_hex(8)}{kind}{TEMPORARY_SUFFIX}"
        self.file = self._path.open("xb")

    def hand_over(self) -> None:
        """Start writing to the disk, and drop from the page cache what is written.

        The sync of `keep` waits for less then, and records that consumers read stay in memory.
        """
        self.file.flush()
        if sys.platform != "darwin":
            with suppress(OSError):  # a file system may take no advice
                os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def keep(self, path: Path) -> int:
        """Sync it, rename it to a path in its folder, and sync that; returns its bytes."""
        self.file.flush()
        os.fsync(self.file.fileno())
        size = self.file.tell()
        self.file.close()
        with durable_names(_DISK, path.parent):
            os.replace(self._path, path)
        return size

    def close(self) -> None:
        """Remove it, unless it was kept."""
        with suppress(OSError):  # on a full disk
            self.file.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
