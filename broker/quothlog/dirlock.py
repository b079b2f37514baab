"""One process owns a directory: flock(2), so a killed process leaves nothing to clean up.

The lock file holds the owner's process id for whoever is refused. A forked child does not keep the lock
alive: it closes its copy of the descriptor right after the fork.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path

from quothlog.layout import LOCK_NAME
from quothwire.errors import error


class DirectoryLock:
    """The lock on a directory, held until `release`. Raises `Conflict` ``locked`` with the owner's pid."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            if not isinstance(problem, BlockingIOError):
                raise
            raise error("locked", f"{directory} is in use by process {owner}") from None
        os.ftruncate(self._fd, 0)
        with suppress(OSError):  # it is told to whoever is refused; a full disk has no room for it
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        _held.add(self)

    def __del__(self) -> None:
        self.release()

    @property
    def released(self) -> bool:
        """Has it been given free?"""
        return self._fd < 0

    def release(self) -> None:
        """Give the directory free. Does nothing the second time."""
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)


_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


def _drop_in_child() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_drop_in_child)
