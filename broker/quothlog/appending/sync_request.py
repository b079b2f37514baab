"""A sync ticket: an fsync to be done, away from the log's owner."""

from __future__ import annotations

from typing import NamedTuple

from quothlog.file_format import Position
from quothlog.segment import ActiveSegment


class SyncRequest(NamedTuple):
    """An fsync to be done for what stands before `end`."""

    segment: ActiveSegment
    end: Position

    def run(self) -> None:
        """Sync the segment. Any thread may. Raises OSError."""
        self.segment.sync()
