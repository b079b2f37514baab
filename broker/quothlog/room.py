"""Room on the disk: what has to be free, and the refusal where it is not."""

from __future__ import annotations

from pathlib import Path

from quothlog.filesystem import FileSystem
from quothwire.errors import QuothError, error


def need_room(filesystem: FileSystem, directory: Path, needed: int) -> None:
    """Raise ``disk_low`` if so many bytes are not free."""
    if filesystem.free_bytes(directory) < needed:
        raise disk_low(filesystem, directory, needed)


def disk_low(filesystem: FileSystem, directory: Path, needed: int, reason: str | None = None) -> QuothError:
    """The refusal of what needs so many bytes. reason: what the operating system says of it."""
    text = f"{filesystem.free_bytes(directory)} bytes are free, {needed} are needed"
    return error("disk_low", f"{reason}; {text}" if reason else text)
