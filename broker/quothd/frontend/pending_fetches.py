"""Keeps the fetches that wait for a newer record.

One costs about 0.8 KB and no thread; it keeps no topic awake. It ends when something newer is announced, when
its topic goes, or at its deadline; those that wait for something else are not looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import count

from quothd.requests.pending_request import PendingRequest

_SLACK = 16


class _Order:
    """Numbers of requests with the lowest key first. Those that ended stay until they are too many."""

    __slots__ = ("_requests", "_rows", "live")

    def __init__(self, requests: Mapping[int, PendingRequest]) -> None:
        self._requests = requests
        self._rows: list[tuple[float, int]] = []
        self.live = 0

    def add(self, key: float, number: int) -> None:
        """Add the number of a request that waits now."""
        heapq.heappush(self._rows, (key, number))
        self.live += 1
        if len(self._rows) > 2 * self.live + _SLACK:
            self._rows = [row for row in self._rows if row[1] in self._requests]
            heapq.heapify(self._rows)

    def first(self) -> tuple[float, int] | None:
        """The lowest key of a request that still waits, and its number."""
        while self._rows and self._rows[0][1] not in self._requests:
            heapq.heappop(self._rows)
        return self._rows[0] if self._rows else None


class PendingFetches:
    """Fetches by topic and cursor, and by deadline. Owned by the front end's thread."""

    def __init__(self) -> None:
        self._requests: dict[int, PendingRequest] = {}
        self._by_topic: dict[str, _Order] = {}
        self._deadlines = _Order(self._requests)
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: PendingRequest) -> None:
        """Let a fetch wait until its deadline."""
        number = next(self._numbers)
        self._requests[number] = request
        self._deadlines.add(request.deadline, number)
        order = self._by_topic.setdefault(request.topic, _Order(self._requests))
        order.add(request.after, number)

    def take_ready(self, topic: str, newest: int, most: int) -> list[PendingRequest]:
        """Take the fetches of a topic that begin below `newest`, those furthest behind first."""
        ready: list[PendingRequest] = []
        order = self._by_topic.get(topic)
        while order and len(ready) < most and (first := order.first()) is not None and first[0] < newest:
            ready.append(self._end(first[1]))
        return ready

    def take_all(self, topic: str | None = None) -> list[PendingRequest]:
        """Take all fetches, or all of a topic, the oldest first."""
        numbers = [number for number, one in self._requests.items() if topic in (None, one.topic)]
        return [self._end(number) for number in numbers]

    def take_expired(self, now: float) -> list[PendingRequest]:
        """Take the fetches whose deadline has passed."""
        expired: list[PendingRequest] = []
        while (first := self._deadlines.first()) is not None and first[0] <= now:
            expired.append(self._end(first[1]))
        return expired

    def next_deadline(self) -> float | None:
        """Return the monotonic time of the next call of `take_expired`."""
        first = self._deadlines.first()
        return first[0] if first is not None else None

    def _end(self, number: int) -> PendingRequest:
        request = self._requests.pop(number)
        order = self._by_topic[request.topic]
        order.live -= 1
        if not order.live:
            del self._by_topic[request.topic]
        self._deadlines.live -= 1
        return request
