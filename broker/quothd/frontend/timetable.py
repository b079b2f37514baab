"""Keeps the times at which topics need work that no client asks for.

An active topic says when its next maintenance is due, by the monotonic clock; a hibernating one, when
retention will have something to remove, by the time of day. A row whose time is not that of its entry any
more is stale.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from itertools import count

from quothd.frontend.lifecycle import State
from quothd.frontend.registry import RegistryEntry


class Timetable:
    """Two heaps of entries. Owned by the front end's thread."""

    def __init__(self) -> None:
        self._maintenance: list[tuple[float, int, RegistryEntry]] = []
        self._retention: list[tuple[int, int, RegistryEntry]] = []
        self._rows = count()

    # -- active topics, by the monotonic clock --------------------------------------------------------------

    def plan(self, entry: RegistryEntry, due: float) -> None:
        """Look at an active topic at `due`, unless it is planned for an earlier time."""
        if due < math.inf and (not entry.tick_at or due < entry.tick_at):
            entry.tick_at = due
            heapq.heappush(self._maintenance, (due, next(self._rows), entry))

    def take_due(self, now: float) -> list[RegistryEntry]:
        """Remove and return the active topics that are due; the caller plans each of them again."""
        due_now: list[RegistryEntry] = []
        rows = self._maintenance
        while rows and rows[0][0] <= now:
            due, _, entry = heapq.heappop(rows)
            if entry.tick_at == due:
                entry.tick_at = 0.0
                due_now.append(entry)
        return due_now

    def next_due(self) -> float | None:
        """Return the earliest time of an active topic."""
        return self._maintenance[0][0] if self._maintenance else None

    # -- hibernating topics, by the time of day -------------------------------------------------------------

    def retain(self, entry: RegistryEntry, due: int | None) -> None:
        """Open a topic at `due`, in microseconds since 1970, if it hibernates then."""
        if due is not None and due != entry.retention_at:
            heapq.heappush(self._retention, (due, next(self._rows), entry))
        entry.retention_at = due

    def expire_staged(self, entries: Iterable[RegistryEntry], clock: int) -> None:
        """Open the topics that hibernate and have staged batches, which may expire at another time now."""
        for entry in entries:
            if entry.state is State.HIBERNATING and entry.info and entry.info.gauges["staged_bytes"]:
                self.retain(entry, clock)

    def take_retention(self, clock: int) -> Iterator[RegistryEntry]:
        """Yield the topics whose retention is due."""
        rows = self._retention
        while rows and rows[0][0] <= clock:
            due, _, entry = heapq.heappop(rows)
            if entry.retention_at == due:
                entry.retention_at = None
                yield entry
