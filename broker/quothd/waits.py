"""Parked fetches: who waits for what, and until when.

A wait costs about 1 KiB and no thread; it keeps no topic awake. It ends when something newer is
announced, when its topic goes, or at its deadline.
"""

from __future__ import annotations

import heapq
from itertools import count, islice

from quothd.job import Job

_SLACK = 1_024


class Waits:
    """Jobs by topic and by deadline. Owned by the front end's thread."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, Job]] = {}
        self._deadlines: list[tuple[float, int, str]] = []
        self._numbers = count()
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def park(self, job: Job) -> None:
        """Let a job wait until `job.deadline`."""
        number = next(self._numbers)
        self._by_topic.setdefault(job.topic, {})[number] = job
        heapq.heappush(self._deadlines, (job.deadline, number, job.topic))
        self._live += 1
        if len(self._deadlines) > 2 * self._live + _SLACK:
            self._forget_ended()

    def take_ready(self, topic: str, newest: int, most: int) -> list[Job]:
        """The jobs of a topic that something up to `newest` is news for, the oldest first."""
        waiting = self._by_topic.get(topic)
        if not waiting:
            return []
        ready = (number for number, job in waiting.items() if job.after < newest)
        return [self._end(topic, number) for number in list(islice(ready, most))]

    def take_topic(self, topic: str) -> list[Job]:
        """All jobs of a topic."""
        return [self._end(topic, number) for number in list(self._by_topic.get(topic, ()))]

    def take_all(self) -> list[Job]:
        """All jobs."""
        return [job for topic in list(self._by_topic) for job in self.take_topic(topic)]

    def take_expired(self, now: float) -> list[Job]:
        """The jobs whose deadline has passed."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, topic = heapq.heappop(self._deadlines)
            if number in self._by_topic.get(topic, ()):
                expired.append(self._end(topic, number))
        return expired

    def next_deadline(self) -> float | None:
        """When to call `take_expired` next."""
        return self._deadlines[0][0] if self._deadlines else None

    def _end(self, topic: str, number: int) -> Job:
        waiting = self._by_topic[topic]
        job = waiting.pop(number)
        if not waiting:
            del self._by_topic[topic]
        self._live -= 1
        return job

    def _forget_ended(self) -> None:
        self._deadlines = [row for row in self._deadlines if row[1] in self._by_topic.get(row[2], ())]
        heapq.heapify(self._deadlines)
