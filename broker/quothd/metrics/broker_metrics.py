"""The metrics of a broker: amounts of all topics, durations, and which topics have changed."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from quothd.metrics.histogram import Histogram
from quothd.metrics.measures import NO_TRAFFIC, Measures
from quothd.requests.pending_request import PendingRequest
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.messages import Operation

STALE_MAX = 1_000
"""Outdated places in the order of changes: beyond, they are at most as many as the topics."""
EXAMINED_MAX = 2_000
"""Places in the order of changes, or topics, that one request looks at: they take the front end about a
millisecond."""


class Changed(Protocol):
    """A topic that knows when it has changed last."""

    serial: int


T = TypeVar("T", bound=Changed)


class ChangeOrder(Generic[T]):
    """The topics in the order of their last changes. Owned by the front end's thread.

    start, serial: of no change, and of the newest one. Serials begin at the time of the start, in
    microseconds: those of an earlier process lie below. examined_max: places that one call looks at.
    """

    def __init__(self, start: int) -> None:
        self.start = self.serial = start
        self.examined_max = EXAMINED_MAX
        self._serials: list[int] = []
        self._changed: list[T] = []
        self._most = STALE_MAX

    def touch(self, entry: T) -> None:
        """Take note that a topic has changed."""
        self.serial += 1
        entry.serial = self.serial
        self._serials.append(self.serial)
        self._changed.append(entry)
        if len(self._changed) > self._most:
            self._changed = [*self._live(0, len(self._changed))]
            self._serials = [one.serial for one in self._changed]
            self._most = 2 * len(self._changed) + STALE_MAX

    def forget(self, entry: T) -> None:
        """Forget a topic that does not exist any more."""
        entry.serial = 0

    def since(self, serial: int) -> tuple[list[T], int]:
        """Return the topics that have changed since, the last one last, among the next places.

        Returns also the serial to go on with: that of the last place that was looked at, the newest one if
        none is left.
        """
        first = bisect_right(self._serials, serial)
        end = first + self.examined_max
        reached = self._serials[end - 1] if end < len(self._serials) else self.serial
        return [*self._live(first, end)], reached

    def _live(self, first: int, end: int) -> Iterator[T]:
        for at in range(first, min(end, len(self._changed))):
            if self._changed[at].serial == self._serials[at]:
                yield self._changed[at]


class BrokerMetrics:
    """Amounts and durations since the start, over all topics. Owned by the front end's thread.

    traffic: of all topics, deleted ones included. refused: errors by code. finished: requests and the seconds
    from their acceptance for a topic to their answer, without those that a fetch waits for records; see
    `count_finished`.
    """

    def __init__(self) -> None:
        self.traffic = NO_TRAFFIC
        self.refused: Counter[str] = Counter()
        self.finished: list[tuple[Operation, float]] = []
        self._requests: defaultdict[Operation, Histogram] = defaultdict(Histogram)
        self._others: dict[str, Histogram] = {name: Histogram() for name in ("append", "fsync", "opening")}

    def add(self, measures: Measures) -> None:
        """Count what a topic has done."""
        self.traffic = self.traffic.plus(measures.traffic)
        self.refused += measures.refused
        for name, durations in measures.fold().items():
            self._others[name].add(durations)

    def observe_opening(self, seconds: float) -> None:
        """Count the opening of a topic."""
        self._others["opening"].observe((seconds,))

    def count_finished(self) -> None:
        """Count the requests that have finished since the last call."""
        for operation, seconds in self.finished:
            self._requests[operation].observe((seconds,))
        self.finished.clear()

    def refuse(self, request: PendingRequest, problem: QuothError) -> Frames:
        """Return the frames of an error for a request, and count it."""
        self.refused[problem.code] += 1
        return request.responder.refuse(problem)

    def maps(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return for a reply: errors by code, durations of requests by operation, other durations by name."""
        self.count_finished()
        requests = {operation.name.lower(): found.to_map() for operation, found in self._requests.items()}
        return dict(self.refused), requests, {name: one.to_map() for name, one in self._others.items()}
