"""Measures a broker at intervals: the rates between two looks.

A look costs a page of the status for every thousand topics, and a request for each topic that is described:
those that are active now or were at the last look, and as many more as there is room for. None of it opens a
topic or keeps one open. One that was active only between two looks is not noticed, which takes an interval
longer than the broker's `worker_timeout`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from quothwire.protocol.value import Value

if TYPE_CHECKING:
    from quoth import Client, Status, TopicInfo
    from quoth.cursor import Position


_HIBERNATING = "h"
_JUST_ACTIVE = 1e-9


class Sort(StrEnum):
    """An order of topics: by records or bytes a second, by name, by age, by lag."""

    RATE = "rate"
    BYTES = "bytes"
    NAME = "name"
    AGE = "age"
    LAG = "lag"


class TopicRow(Value):
    """A topic in a view. Rates are None where there is no earlier look.

    age: seconds since its newest record, None if there is none. lag: how many records a cursor is behind,
    None if unknown, lag_seconds: the time from its position to the newest record.
    """

    name: str
    records_per_second: float | None
    bytes_per_second: float | None
    records: int
    bytes: int
    age: float | None
    lag: int | None
    lag_seconds: float | None
    states: str
    problem: str


class BrokerView(Value):
    """The result of a look. seconds: since the last look, None if there is none."""

    status: Status
    seconds: float | None
    requests_per_second: float | None
    syncs_per_second: float | None
    rows: Sequence[TopicRow]


class _Look(Value):
    at: float
    status: Status
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    active: frozenset[str] = frozenset()


class Watch:
    """Looks at one broker, and keeps the last look. cursor: the file of a consumer, for its lag."""

    def __init__(self, client: Client, sort: Sort, cursor: Path | None = None) -> None:
        self._client = client
        self._sort = sort
        self._cursor = cursor
        self._before: _Look | None = None

    def look(self, rows_max: int) -> BrokerView:
        """Look now. Raises `QuothError`; the last look stays."""
        from quoth import NotFound
        from quoth.cursor import positions_in

        status = self._client.status()
        done = positions_in(self._cursor) if self._cursor is not None else {}
        active = frozenset(name for name, states in status.states.items() if states.strip(_HIBERNATING))
        look = _Look(time.monotonic(), status, {}, active)
        before = self._before
        if before is not None and before.status.uptime > status.uptime:  # another process with new counters
            before = None
        for name in dict.fromkeys([*done, *self._described(look, before, rows_max)]):
            try:
                look.topics[name] = self._client.topic(name)
            except NotFound:  # deleted since the status
                continue
        self._before = look
        now = time.time()
        rows = [self._row(info, look, before, now, done.get(info.name)) for info in look.topics.values()]
        rows.sort(key=_ORDERS[self._sort])
        seconds = look.at - before.at if before is not None else None
        requests, syncs = (self._rate(name, look, before) for name in ("requests", "syncs"))
        return BrokerView(status, seconds, requests, syncs, rows[:rows_max])

    def _described(self, look: _Look, before: _Look | None, rows_max: int) -> Iterator[str]:
        """Yield the topics to describe."""
        states = look.status.states
        if self._sort is Sort.NAME:
            yield from islice(states, rows_max)
            return
        active = look.active | (before.active if before is not None else frozenset())
        yield from (name for name in states if name in active)
        yield from islice((name for name in states if name not in active), max(0, rows_max - len(active)))

    def _row(
        self, info: TopicInfo, look: _Look, before: _Look | None, now: float, done: Position | None
    ) -> TopicRow:
        records = size = None
        was = before.topics.get(info.name) if before is not None else None
        if before is not None and was is not None and was.log == info.log:
            seconds = look.at - before.at
            records = (_end(info) - _end(was)) / seconds
            if was.first_ordinal == info.first_ordinal:  # else an unknown number of bytes was removed
                size = (info.bytes - was.bytes) / seconds
        age = max(0.0, now - info.last / 1e6) if info.last else None
        lag = lag_of(info, done)
        return TopicRow(
            info.name, records, size, info.count, info.bytes, age, *lag, info.states, info.problem
        )

    @staticmethod
    def _rate(counter: str, look: _Look, before: _Look | None) -> float | None:
        if before is None:
            return None
        counts = [int(one.status.counters.get(counter, 0)) for one in (before, look)]
        return (counts[1] - counts[0]) / (look.at - before.at)


def lag_of(info: TopicInfo, done: Position | None) -> tuple[int | None, float | None]:
    """Return records and seconds that a cursor is behind."""
    if done is None:
        return None, None
    if info.last <= done.after:
        return 0, 0.0
    here = info.log == done.log and done.ordinal >= 0
    return _end(info) - done.ordinal if here else None, (info.last - max(done.after, info.first)) / 1e6


def _end(info: TopicInfo) -> int:
    return info.first_ordinal + info.count


def _known(rate: float | None, row: TopicRow) -> float:
    """Return a rate to sort by: a topic that is active only now stands above those without requests."""
    if rate is None:
        return _JUST_ACTIVE if row.states.strip(_HIBERNATING) else 0.0
    return rate


_ORDERS: dict[Sort, Callable[[TopicRow], tuple[float, str]]] = {
    Sort.RATE: lambda row: (-_known(row.records_per_second, row), row.name),
    Sort.BYTES: lambda row: (-_known(row.bytes_per_second, row), row.name),
    Sort.NAME: lambda row: (0.0, row.name),
    Sort.AGE: lambda row: (row.age if row.age is not None else math.inf, row.name),
    Sort.LAG: lambda row: (-(row.lag_seconds or 0.0), row.name),
}
