"""A lock by flock(2): a killed process leaves nothing to clean up.

The lock file stays, with the owner's process id for the error of the next process. Only a regular file is
taken for it: a symbolic link could name any file, which would be written over. A forked child does not keep
the lock alive: it closes its copies of the descriptors right after the fork.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from quothwire.errors import error
from quothwire.text.paths import is_at, open_regular


class Flock:
    """Locks that are held until `release`, on one descriptor or several. released: they are not held."""

    def __init__(self) -> None:
        self.released = False
        self._fds: list[int] = []
        _held.add(self)

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Unlock. Does nothing the second time."""
        self.released = True
        fds, self._fds = getattr(self, "_fds", []), []
        for fd in reversed(fds):
            os.close(fd)

    def _take(self, path: Path, guarded: Path, hint: str | None = None, *, mode: int = 0o600) -> None:
        """Lock a file, made if need be, and write this process's id into it.

        guarded: the path in the error. Raises `Conflict` ``locked`` with the owner's id, or OSError if the
        name is not that of a regular file.
        """
        is_locked = False
        while not is_locked:
            self._fds.append(open_regular(path, os.O_RDWR | os.O_CREAT, mode))
            lock(self._fds[-1], path, guarded, hint)
            is_locked = is_at(self._fds[-1], path)
            if not is_locked:  # it was deleted after it was opened
                os.close(self._fds.pop())
        owner = b"%d\n" % os.getpid()
        try:
            os.pwrite(self._fds[-1], owner, 0)
        except OSError:  # a full disk has no room for it
            owner = b""
        os.ftruncate(self._fds[-1], len(owner))  # cut to nothing before, it would wait for the disk on ext4


def lock(fd: int, path: Path, guarded: Path, hint: str | None = None, kind: int = fcntl.LOCK_EX) -> None:
    """Lock an open file or directory. path: the lock file with the owner's id. Raises as `Flock` does."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise error("locked", f"{guarded} is in use by process {_owner(path)}", hint) from None


def owner_in(fd: int) -> str:
    """Read the process id in an open lock file, "unknown" if there is none. Raises OSError.

    Behind its line may be the end of a longer one, which the owner is about to cut off.
    """
    return os.pread(fd, 32, 0).decode("ascii", "replace").partition("\n")[0].strip() or "unknown"


def _owner(path: Path) -> str:
    try:
        fd = open_regular(path, os.O_RDONLY)
    except OSError:
        return "unknown"
    try:
        return owner_in(fd)
    finally:
        os.close(fd)


_held: weakref.WeakSet[Flock] = weakref.WeakSet()


def _release_in_child() -> None:
    for held in list(_held):
        held.release()


os.register_at_fork(after_in_child=_release_in_child)
