"""Files that a job keeps: whole under their names, or not there, whatever dies while they are written."""

from __future__ import annotations

import errno
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from quothlog.storage.filesystem import TEMPORARY_SUFFIX, PosixFileSystem, durable_names, sync_directory
from quothwire.errors import error
from quothwire.text.paths import given_path

_DISK = PosixFileSystem()


def local_path(folder: str | Path) -> Path:
    """The folder of an archive or a checkpoint. Raises `RequestError` ``bad_request`` for what is no path."""
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
    with suppress(PermissionError):  # always: who made it may have died before this; not us, if we may not
        sync_directory(_DISK, path.parent)


def refuse_existing(path: str | Path | None) -> None:
    """Raise FileExistsError for what a job would write over, ``bad_setting`` for an empty path.

    None: the job keeps nothing.
    """
    if path is not None and os.path.exists(given_path(path, "the output")):
        raise FileExistsError(errno.EEXIST, "it exists already, and nothing was written", str(path))


class AtomicFile:
    """A file of which nobody knows until it is kept: `file` is what is written to.

    Its name begins with a dot, as readers of Parquet leave out, and is nobody else's, so that two who write
    the same do not disturb each other. Left without being kept, it is removed.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        """kind: what its name ends in, before what tells that it is a draft."""
        self._path = folder / f".{secrets.token_hex(8)}{kind}{TEMPORARY_SUFFIX}"
        self.file = self._path.open("xb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def hand_over(self) -> None:
        """Let the disk begin to write what there is, and memory forget what has been written by now.

        Then keeping it waits for little; and what nobody reads here does not take the memory of what is read.
        """
        self.file.flush()
        if sys.platform != "darwin":
            with suppress(OSError):  # a file system may take no advice
                os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def keep(self, path: Path) -> int:
        """Put it in place, in its folder, so that it survives a loss of power; returns its bytes."""
        self.file.flush()
        os.fsync(self.file.fileno())
        size = self.file.tell()
        self.file.close()
        with durable_names(_DISK, path.parent):
            os.replace(self._path, path)
        return size

    def drop(self) -> None:
        """Remove it, unless it was kept."""
        with suppress(OSError):  # on a full disk
            self.file.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
