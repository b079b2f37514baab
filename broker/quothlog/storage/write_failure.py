"""Writes that a disk refuses: for want of room, which passes, and failures, after which nothing is written.

A write refused for want of room, descriptors or memory stores nothing. After any other failed write or fsync
the contents of the disk are unknown, so a log takes no more writes until it is opened again.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quothlog.storage.filesystem import DISK_FULL, PROCESS_SHORT, FileSystem
from quothwire.errors import QuothError, error
from quothwire.text.quantity import format_size

WITHHELD = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS))
"""The errors of a call for which something is in the way: rights, a mount, a sandbox."""
_WITHHELD_HINT = (
    "may the broker's user write there? is it mounted read-only, moved away, or hidden by a sandbox?"
)
_AGAIN = "free some space and try again"


def need_room(filesystem: FileSystem, directory: Path, needed: int) -> None:
    """Raise ``disk_low`` if so many bytes are not free."""
    if filesystem.free_bytes(directory) < needed:
        raise error("disk_low", _free_and_needed(filesystem, directory, needed))


def refused_growth(problem: OSError, free: str = "", kept: str = "") -> QuothError:
    """Make the ``disk_low`` of a write that found no room: a full disk, a quota, or a file at its limit.

    free: how much is free, left out where that is not what is wrong. kept: what is as it was, for the hint.
    """
    if problem.errno != errno.EFBIG:
        return error("disk_low", f"{problem.strerror}{free}", f"{kept}; {_AGAIN}" if kept else None)
    before = f"{kept}; " if kept else ""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        text = "the file would be larger than its file system allows; the disk is not full"
        return error("disk_low", text, f"{before}lower size_limit, or use another file system")
    text = f"a file of this process holds at most {format_size(limit)} (RLIMIT_FSIZE); the disk is not full"
    return error("disk_low", text, f"{before}raise that limit: `ulimit -f`, or LimitFSIZE= in the unit")


@contextmanager
def report_full_disk(filesystem: FileSystem, directory: Path, what: str, kept: str) -> Iterator[None]:
    """Raise ``disk_low`` where the system says that the disk is full.

    what: names what has no room. kept: names what is as it was, for the hint.
    """
    try:
        yield
    except OSError as problem:
        if problem.errno not in DISK_FULL:
            raise
        found = refused_growth(problem, f"; {format_size(filesystem.free_bytes(directory))} are free", kept)
        raise error(found.code, f"no room in {directory} for {what}: {found.text}", found.hint) from problem


def _free_and_needed(filesystem: FileSystem, directory: Path, needed: int) -> str:
    return f"{format_size(filesystem.free_bytes(directory))} are free, {format_size(needed)} are needed"


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
        """Return the error for the client; take no more writes unless it passes.

        needed: the bytes that had to be free.
        """
        if isinstance(problem, QuothError):
            return self.fail(OSError(problem.text)) if problem.code == "storage_failed" else problem
        if problem.errno in DISK_FULL:
            free = _free_and_needed(self._filesystem, self._directory, needed)
            return refused_growth(problem, f"; {free}")
        if problem.errno in PROCESS_SHORT:
            return error("busy", f"{problem.strerror}", "nothing was stored; try again, or raise the limit")
        return self.fail(problem)
