"""A sync ticket: an fsync to be done, away from the log's owner."""

from __future__ import annotations

from typing import NamedTuple

from quothlog.filesystem import File
from quothlog.layout import Position


class SyncTicket(NamedTuple):
    """An fsync to be done; `run` may be called by any thread and raises OSError."""

    file: File
    end: Position
    floor: int

    def run(self) -> None:
        """Sync the file."""
        self.file.sync()
