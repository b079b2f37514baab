"""Watches the free space of the data directory's disk, for the metrics."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from math import inf
from pathlib import Path

from quothlog.storage.filesystem import FileSystem

LOOK_S = 5.0
"""Between two looks. The log of each topic looks for itself before it writes."""
LOW_FACTOR = 2
"""The disk is low below so many times `disk_free_min`: there is still time to act."""


Space = tuple[int, int] | None
"""Bytes that are free, and those of the disk; None if that is not known."""


class DiskLevel(IntEnum):
    """Levels of the space that is left on a disk."""

    FINE = 0
    LOW = 1
    READ_ONLY = 2
    """Publishes are refused."""


class DiskWatch:
    """The last known size of a disk. Owned by the front end's thread.

    submit: calls a function in another thread, and another one with its result there: a disk that stands
    still may keep the first one for long.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        submit: Callable[[Callable[[], Space], Callable[[Space], None]], None],
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._submit = submit
        self._due = -inf
        self._space: Space = None

    def tick(self, now: float) -> None:
        """Begin a look at the disk if one is due, and the last one has ended."""
        if now >= self._due:
            self._due = inf
            self._submit(self._look, lambda space: self._take(space, now))

    def gauges(self, free_min: int) -> dict[str, int]:
        """Return the free bytes, those of the disk, and the level; empty before the first look.

        free_min: bytes below which publishes are refused.
        """
        if (space := self._space) is None:
            return {}
        free, total = space
        level = DiskLevel.READ_ONLY if free < free_min else DiskLevel.FINE
        if level is DiskLevel.FINE and free < LOW_FACTOR * free_min:
            level = DiskLevel.LOW
        return {"disk_free_bytes": free, "disk_total_bytes": total, "disk_level": int(level)}

    def _look(self) -> Space:
        """Look at the disk. Any thread."""
        try:
            free = self._filesystem.free_bytes(self._directory)
            return free, self._filesystem.total_bytes(self._directory)
        except OSError:
            return None

    def _take(self, space: Space, began: float) -> None:
        """Take note of what was found. Any thread: the front end reads each attribute at once."""
        self._space, self._due = space, began + LOOK_S
