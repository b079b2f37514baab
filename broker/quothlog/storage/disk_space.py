"""Watches the free space of a disk, without a system call for each write."""

from __future__ import annotations

from pathlib import Path

from quothlog.storage.filesystem import FileSystem
from quothlog.storage.write_failure import need_room

SHARE = 16
"""The system is asked again once this part of the spare bytes is written, since others write, too."""
TRUSTED_US = 50_000
"""And after so long. A disk of 1 GB/s loses 50 MB in that time, less than what is kept free by default."""


class DiskSpace:
    """The free space of one directory's disk. Owned by the log's owner."""

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._spare = 0
        self._asked_at = self._free_min = 0

    def need(self, size: int, free_min: int, now: int) -> None:
        """Raise ``disk_low`` if fewer than `free_min` bytes are free behind a write of so many bytes.

        now: microseconds of any clock. Does nothing where `free_min` is 0.
        """
        if not free_min:
            return
        self._spare -= size
        if self._spare >= 0 and free_min == self._free_min and 0 <= now - self._asked_at < TRUSTED_US:
            return
        free = self._filesystem.free_bytes(self._directory)
        if free < free_min + size:
            self._spare = 0
            need_room(self._filesystem, self._directory, free_min + size)
        self._spare = (free - free_min - size) // SHARE
        self._asked_at, self._free_min = now, free_min
