"""A lock file beside a file that one program at a time may use.

The lock is flock(2), so a killed program leaves nothing to clean up. The lock file stays, with the process id
of its owner for the error of the next program. It has to be a regular file: a symbolic link could name any
file, which would be overwritten. A forked child does not keep the lock: it closes its copy of the descriptor.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quothwire.errors import error
from quothwire.text.paths import is_at, open_regular

SUFFIX = ".lock"


class FileLock:
    """The lock on a file, held until `release`.

    Raises `Conflict` ``locked`` with the owner's pid, or OSError if there can be no file beside that one.
    """

    def __init__(self, path: Path) -> None:
        beside = path.with_name(path.name + SUFFIX)
        self._take(beside, path)
        os.ftruncate(self._fd, 0)
        with suppress(OSError):  # only for the error of the next program; a full disk may have no room for it
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        _held.add(self)

    def _take(self, beside: Path, path: Path) -> None:
        """Lock the file of that name; try again if it is deleted meanwhile."""
        self._fd = open_regular(beside, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            if not isinstance(problem, BlockingIOError):
                raise
            raise error(
                "locked",
                f"{path} is in use by process {owner}",
                "one program at a time goes on with it: stop that one, or give this one a file of its own",
            ) from None
        if not is_at(self._fd, beside):
            self.release()
            self._take(beside, path)

    def __del__(self) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """True if this process holds it."""
        return self._fd >= 0

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Release the lock if the block, which reads the guarded file, fails."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock. Does nothing the second time."""
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _drop_in_child() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_drop_in_child)
