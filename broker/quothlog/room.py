"""Room on the disk and in the process: what has to be free, and the refusal where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quothlog.filesystem import DISK_FULL, PROCESS_SHORT, FileSystem
from quothwire.errors import QuothError, error


def need_room(filesystem: FileSystem, directory: Path, needed: int) -> None:
    """Raise ``disk_low`` if so many bytes are not free."""
    if filesystem.free_bytes(directory) < needed:
        raise disk_low(filesystem, directory, needed)


def disk_low(filesystem: FileSystem, directory: Path, needed: int, reason: str | None = None) -> QuothError:
    """The refusal of what needs so many bytes. reason: what the operating system says of it."""
    text = f"{filesystem.free_bytes(directory)} bytes are free, {needed} are needed"
    return error("disk_low", f"{reason}; {text}" if reason else text)


def shortage(
    problem: OSError | QuothError, filesystem: FileSystem, directory: Path, needed: int
) -> QuothError | None:
    """What is told of something that went wrong with so many bytes and passes; None for what does not."""
    if isinstance(problem, QuothError):
        return problem if problem.code != "storage_failed" else None
    if problem.errno in DISK_FULL:
        return disk_low(filesystem, directory, needed, problem.strerror)
    if problem.errno in PROCESS_SHORT:
        return error("busy", f"{problem.strerror}", "nothing was stored; try again, or raise the limit")
    return None


@contextmanager
def tell_if_full(filesystem: FileSystem, directory: Path, what: str, hint: str) -> Iterator[None]:
    """Raise ``disk_low`` where the system says that the disk is full. what: for which there is no room."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in DISK_FULL:
            raise
        free = filesystem.free_bytes(directory)
        text = f"no room in {directory} for {what}: {problem.strerror}; {free} bytes are free"
        raise error("disk_low", text, hint) from problem
