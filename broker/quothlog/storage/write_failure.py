"""The failed writes of a log, and what follows from them.

A refusal for want of room, descriptors or memory passes, and nothing was stored. After any other failed write
or fsync the contents of the disk are unknown, so nothing more is written until the log is opened again.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from quothlog.storage.disk_space import shortage
from quothlog.storage.filesystem import FileSystem
from quothwire.errors import QuothError, error

WITHHELD = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS))
"""The errors of a call for which something is in the way: rights, a mount, a sandbox."""
_WITHHELD_HINT = (
    "may the broker's user write there? is it mounted read-only, moved away, or hidden by a sandbox?"
)


def storage_failed(problem: OSError, place: Path, topic: str = "") -> QuothError:
    """The error of something that the operating system refused, with the path that it is about.

    place: the path in the error if the system names no file. topic: stands in front, if one is given.
    """
    path = os.fsdecode(place if problem.filename is None else problem.filename)
    hint = _WITHHELD_HINT if problem.errno in WITHHELD else None
    what = f"{topic}: " if topic else ""
    return error("storage_failed", f"{what}{path}: {problem.strerror or problem}", hint)


class WriteFailure:
    """The reason for which a log takes no more writes: `failure`, None if it does. Not thread-safe."""

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self.failure: QuothError | None = None
        self._filesystem = filesystem
        self._directory = directory

    def fail(self, problem: OSError | QuothError) -> QuothError:
        """Take no more writes from now on; returns the reason."""
        if isinstance(problem, OSError):
            problem = storage_failed(problem, self._directory)
        self.failure = self.failure or problem
        return self.failure

    def interrupt(self) -> None:
        """Take no more writes: one was interrupted, by Ctrl-C for instance, and may be there in part."""
        self.fail(OSError("interrupted while it was being written"))

    def as_error(self, problem: OSError | QuothError, needed: int) -> QuothError:
        """Return the error for the client. needed: the bytes that had to be free."""
        passing = shortage(problem, self._filesystem, self._directory, needed)
        if passing is not None:
            return passing
        return self.fail(problem if isinstance(problem, OSError) else OSError(problem.text))
