"""One process owns a directory, by flock(2).

Two locks are held: one on the directory itself, and one on the file `lock` in it, which holds the owner's
process id. A directory below one that this process owns has the second one only: descriptors are few, and
topics are many. So that both kinds of owners exclude each other where `lock` is deleted, each tries the
other's lock and releases it at once, see FORMAT.md. Each holds its own lock before it tries, so two that
begin at the same time cannot both go on.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from quothlog.file_format import LOCK_NAME
from quothwire.flock import Flock, lock

_NO_DIRECTORY_LOCKS = frozenset((errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP))
"""The errors of a network file system that has locks for files only; the lock file is the lock there."""


TOPICS_NAME = "topics"
"""The folder of a data directory that holds its topics' folders."""


class DirectoryLock(Flock):
    """The lock on a directory, held until `release`.

    Raises `Conflict` ``locked`` with the owner's pid, or OSError if `lock` is not a regular file.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._is_whole = False
        self._directory = Path(os.path.realpath(directory))
        try:
            if _owned.isdisjoint(self._directory.parents):
                self._take_itself(directory)
                if self._directory.parent.name == TOPICS_NAME:
                    _try(self._directory.parents[1], fcntl.LOCK_SH)
            else:  # held, it would take one more descriptor for each topic of a data directory
                _try(directory, fcntl.LOCK_EX)
            self._take(directory / LOCK_NAME, directory)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Unlock the directory. Does nothing the second time."""
        if getattr(self, "_is_whole", False):
            self._is_whole = False
            _owned.discard(self._directory)
        super().release()

    def _take_itself(self, directory: Path) -> None:
        """Lock the directory itself, if its file system can."""
        self._fds.append(_opened(directory))
        _lock_itself(self._fds[-1], directory)
        self._is_whole = True
        _owned.add(self._directory)


class BareDirectoryLock(Flock):
    """The lock on a directory itself without a file in it, held until `release`.

    Raises `Conflict` ``locked``. A file system that has locks for files only locks nothing.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._fds.append(_opened(directory))
        try:
            _lock_itself(self._fds[0], directory)
        except BaseException:
            self.release()
            raise


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock_itself(fd: int, directory: Path, kind: int = fcntl.LOCK_EX) -> None:
    """Lock a directory that was opened, if its file system can. Raises as `DirectoryLock` does."""
    try:
        lock(fd, directory / LOCK_NAME, directory, kind=kind)
    except OSError as problem:
        if problem.errno not in _NO_DIRECTORY_LOCKS:
            raise


def _try(directory: Path, kind: int) -> None:
    """Lock a directory itself and unlock it. Raises likewise; one that may not be opened is not tried."""
    try:
        fd = _opened(directory)
    except PermissionError:
        return
    try:
        _lock_itself(fd, directory, kind)
        with suppress(OSError):  # explicitly: a child that was forked meanwhile has a copy of the descriptor
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


_owned: set[Path] = set()
"""Directories that this process has locked themselves, without symbolic links in their paths."""
