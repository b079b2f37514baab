"""Parked fetches: who waits for what, and until when.

A wait costs about 0.8 KB and no thread; it keeps no topic awake. It ends when something newer is
announced, when its topic goes, or at its deadline; those that wait for something else are not looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import count

from quothd.requests.pending_request import PendingRequest

_SLACK = 16


class _Order:
    """Numbers of jobs with the lowest key first. Those of jobs that ended stay until they are too many."""

    __slots__ = ("_jobs", "_rows", "live")

    def __init__(self, jobs: Mapping[int, PendingRequest]) -> None:
        self._jobs = jobs
        self._rows: list[tuple[float, int]] = []
        self.live = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: float, number: int) -> None:
        """Take in the number of a job that waits now."""
        heapq.heappush(self._rows, (key, number))
        self.live += 1
        if len(self._rows) > 2 * self.live + _SLACK:
            self._rows = [row for row in self._rows if row[1] in self._jobs]
            heapq.heapify(self._rows)

    def first(self) -> tuple[float, int] | None:
        """The lowest key of a job that still waits, and its number."""
        while self._rows and self._rows[0][1] not in self._jobs:
            heapq.heappop(self._rows)
        return self._rows[0] if self._rows else None

    def numbers(self) -> list[int]:
        """The numbers of the jobs that still wait, the oldest first."""
        return sorted(number for _, number in self._rows if number in self._jobs)


class PendingFetches:
    """Jobs by topic and cursor, and by deadline. Owned by the front end's thread."""

    def __init__(self) -> None:
        self._jobs: dict[int, PendingRequest] = {}
        self._by_topic: dict[str, _Order] = {}
        self._deadlines = _Order(self._jobs)
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: PendingRequest) -> None:
        """Let a job wait until `job.deadline`."""
        number = next(self._numbers)
        self._jobs[number] = job
        self._deadlines.add(job.deadline, number)
        if job.topic not in self._by_topic:
            self._by_topic[job.topic] = _Order(self._jobs)
        self._by_topic[job.topic].add(job.after, number)

    def take_ready(self, topic: str, newest: int, most: int) -> list[PendingRequest]:
        """The jobs of a topic that something up to `newest` is news for, those furthest behind first."""
        ready: list[PendingRequest] = []
        order = self._by_topic.get(topic)
        while order and len(ready) < most and (first := order.first()) is not None and first[0] < newest:
            ready.append(self._end(first[1]))
        return ready

    def take_topic(self, topic: str) -> list[PendingRequest]:
        """All jobs of a topic, the oldest first."""
        order = self._by_topic.get(topic)
        return [self._end(number) for number in order.numbers()] if order is not None else []

    def take_all(self) -> list[PendingRequest]:
        """All jobs, the oldest first."""
        return [self._end(number) for number in list(self._jobs)]

    def take_expired(self, now: float) -> list[PendingRequest]:
        """The jobs whose deadline has passed."""
        expired: list[PendingRequest] = []
        while (first := self._deadlines.first()) is not None and first[0] <= now:
            expired.append(self._end(first[1]))
        return expired

    def next_deadline(self) -> float | None:
        """Return the monotonic time of the next call of `take_expired`."""
        first = self._deadlines.first()
        return first[0] if first is not None else None

    def _end(self, number: int) -> PendingRequest:
        job = self._jobs.pop(number)
        order = self._by_topic[job.topic]
        order.live -= 1
        if not order.live:
            del self._by_topic[job.topic]
        self._deadlines.live -= 1
        return job
