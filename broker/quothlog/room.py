"""Room on the disk: what has to be free, and the refusal where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quothlog.filesystem import DISK_FULL, FileSystem
from quothwire.errors import QuothError, error


def need_room(filesystem: FileSystem, directory: Path, needed: int) -> None:
    """Raise ``disk_low`` if so many bytes are not free."""
    if filesystem.free_bytes(directory) < needed:
        raise disk_low(filesystem, directory, needed)


def disk_low(filesystem: FileSystem, directory: Path, needed: int, reason: str | None = None) -> QuothError:
    """The refusal of what needs so many bytes. reason: what the operating system says of it."""
    text = f"{filesystem.free_bytes(directory)} bytes are free, {needed} are needed"
    return error("disk_low", f"{reason}; {text}" if reason else text)


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
