"""Keeps the fetches that wait for a newer record.

One costs about 0.8 KB and no thread; it keeps no topic awake. It ends when something newer is announced, when
its topic goes, or at its deadline; those that wait for something else are not looked at.
"""

from __future__ import annotations

from collections import defaultdict

from quothd.frontend.schedule import Schedule
from quothd.requests.pending_request import PendingRequest


class PendingFetches:
    """Fetches by topic and cursor, and by deadline. Owned by the front end's thread."""

    def __init__(self) -> None:
        self._deadlines: Schedule[PendingRequest] = Schedule()
        self._by_topic: defaultdict[str, Schedule[PendingRequest]] = defaultdict(Schedule)

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, request: PendingRequest) -> None:
        """Let a fetch wait until its deadline."""
        self._deadlines.plan(request, request.deadline)
        self._by_topic[request.topic].plan(request, request.after)

    def take_ready(self, topic: str, newest: int, most: int) -> list[PendingRequest]:
        """Take the fetches of a topic that begin below `newest`, those furthest behind first."""
        order = self._by_topic.get(topic)
        return self._end(order.take_due(newest - 1, most)) if order is not None else []

    def take_all(self, topic: str | None = None) -> list[PendingRequest]:
        """Take all fetches, or all of a topic, the oldest first."""
        return self._end([one for one in self._deadlines if topic in (None, one.topic)])

    def take_expired(self, now: float) -> list[PendingRequest]:
        """Take the fetches whose deadline has passed."""
        return self._end(self._deadlines.take_due(now))

    def next_deadline(self) -> float | None:
        """Return the monotonic time of the next call of `take_expired`."""
        return self._deadlines.next_due()

    def _end(self, requests: list[PendingRequest]) -> list[PendingRequest]:
        for request in requests:
            self._deadlines.cancel(request)
            order = self._by_topic.get(request.topic)
            if order is not None:
                order.cancel(request)
                if not order:
                    del self._by_topic[request.topic]
        return requests
