"""One process owns a directory: flock(2), so a killed process leaves nothing to clean up.

Two locks are held: one on the directory itself, which cannot be deleted from under its owner, and one on the
file `lock` in it, which holds the owner's process id for those that are refused. A directory below one that
this process owns has the second one only: descriptors are few, and topics are many. So that both kinds of
owners exclude each other where `lock` is deleted, each tries the other's lock and releases it at once: the
owner of a data directory that of the topic's folder, and the owner of a topic's folder that of the data
directory. Each holds its own lock before it tries, so two that begin at the same time cannot both go on.

A forked child keeps no lock alive: it closes its copies of the descriptors right after the fork.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path

from quothlog.file_format import LOCK_NAME
from quothwire.errors import error
from quothwire.text.paths import is_at, open_regular

_NO_DIRECTORY_LOCKS = frozenset((errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP))
"""What a network file system says that has locks for files only; the lock file is the lock there."""


TOPICS_NAME = "topics"
"""The folder of a data directory that holds its topics' folders."""


class DirectoryLock:
    """The lock on a directory, held until `release`.

    Raises `Conflict` ``locked`` with the owner's pid, or OSError if `lock` is not a regular file.
    """

    def __init__(self, directory: Path) -> None:
        self.released = False
        self._fds: list[int] = []
        self._is_whole = False
        self._directory = Path(os.path.realpath(directory))
        try:
            self._take(directory)
        except BaseException:
            self.release()
            raise
        _held.add(self)

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Unlock the directory. Does nothing the second time."""
        self.released = True
        fds, self._fds = getattr(self, "_fds", []), []
        if self._is_whole:
            self._is_whole = False
            _owned.discard(self._directory)
        for fd in reversed(fds):
            os.close(fd)

    def _take(self, directory: Path) -> None:
        if _owned.isdisjoint(self._directory.parents):
            self._take_itself(directory)
            if self._directory.parent.name == TOPICS_NAME:
                _try(self._directory.parents[1], fcntl.LOCK_SH)
        else:  # held, it would take one more descriptor for each topic of a data directory
            _try(directory, fcntl.LOCK_EX)
        path = directory / LOCK_NAME
        is_locked = False
        while not is_locked:
            self._fds.append(open_regular(path, os.O_RDWR | os.O_CREAT))
            _lock(self._fds[-1], directory)
            is_locked = is_at(self._fds[-1], path)
            if not is_locked:  # it was deleted after it was opened
                os.close(self._fds.pop())
        os.ftruncate(self._fds[-1], 0)
        with suppress(OSError):  # the next opener names it in its refusal; a full disk has no room for it
            os.pwrite(self._fds[-1], b"%d\n" % os.getpid(), 0)

    def _take_itself(self, directory: Path) -> None:
        """Lock the directory itself, if its file system can."""
        self._fds.append(_opened(directory))
        _lock_itself(self._fds[-1], directory)
        self._is_whole = True
        _owned.add(self._directory)


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(fd: int, directory: Path, kind: int = fcntl.LOCK_EX) -> None:
    """Lock what was opened. Raises `Conflict` ``locked``, or OSError."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise error("locked", f"{directory} is in use by process {_owner(directory)}") from None


def _lock_itself(fd: int, directory: Path, kind: int = fcntl.LOCK_EX) -> None:
    """Lock a directory that was opened, if its file system can. Raises likewise."""
    try:
        _lock(fd, directory, kind)
    except OSError as problem:
        if problem.errno not in _NO_DIRECTORY_LOCKS:
            raise


def _try(directory: Path, kind: int) -> None:
    """Lock a directory itself and give it free. Raises likewise; one that may not be opened is not tried."""
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


def _owner(directory: Path) -> str:
    """The process id in the lock file, "unknown" if there is none."""
    try:
        fd = open_regular(directory / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return "unknown"
    try:
        return owner_in(fd)
    finally:
        os.close(fd)


def owner_in(fd: int) -> str:
    """Read the process id in an open lock file, "unknown" if there is none. Raises OSError."""
    return os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"


_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()
_owned: set[Path] = set()
"""Directories that this process has locked themselves, without symbolic links in their paths."""


def _drop_in_child() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_drop_in_child)
