"""Measures a broker at intervals: the rates between two looks.

A look costs a page of the status for every thousand topics, and a request for each topic that is described:
those that are active now or were at the last look, and as many more as there is room for. None of it opens a
topic or keeps one open. One that was active only between two looks is not noticed, which takes an interval
longer than the broker's `worker_timeout`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from quothwire.protocol.value import Value

if TYPE_CHECKING:
    from quoth import Client, Status, TopicInfo
    from quoth.cursor import Position


_HIBERNATING = "h"
_JUST_ACTIVE = 1e-9


Sort = Literal["rate", "bytes", "name", "age", "lag"]
"""An order of topics: by records or bytes a second, by name, by age, by lag."""


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


class _Look(NamedTuple):
    at: float
    status: Status
    topics: Mapping[str, TopicInfo]


class Watch:
    """Looks at one broker, and keeps the last look. cursor: the file of a consumer, for its lag."""

    def __init__(self, client: Client, sort: Sort, cursor: Path | None = None) -> None:
        self._client = client
        self._sort = sort
        self._cursor = cursor
        self._before: _Look | None = None

    def look(self, rows_max: int) -> BrokerView:
        """Look now. Raises `QuothError`; the last look stays."""
        status, at, now = self._client.status(), time.monotonic(), time.time()
        before = self._before
        if before is not None and _is_another(before.status, status):
            before = None
        done = positions_of(self._cursor)
        names = dict.fromkeys([*done, *self._described(status, before, rows_max)])
        topics = dict(topics_of(self._client, names))
        self._before = _Look(at, status, topics)
        seconds = at - before.at if before is not None else None
        rows = []
        for name, info in topics.items():
            was = before.topics.get(name) if before is not None else None
            rates = _rates(was, info, seconds)
            age = max(0.0, now - info.last / 1e6) if info.last else None
            lag = lag_of(info, done.get(name))
            rows.append(TopicRow(name, *rates, info.count, info.bytes, age, *lag, info.states, info.problem))
        rows.sort(key=_ORDERS[self._sort])
        requests, syncs = (_counter_rate(name, status, before, seconds) for name in ("requests", "syncs"))
        return BrokerView(status, seconds, requests, syncs, rows[:rows_max])

    def _described(self, status: Status, before: _Look | None, rows_max: int) -> Iterator[str]:
        """Yield the topics to describe."""
        if self._sort == "name":
            yield from islice(status.states, rows_max)
            return
        looks = [status] if before is None else [status, before.status]
        active = {name for one in looks for name, states in one.states.items() if _is_active(states)}
        yield from (name for name in status.states if name in active)
        others = (name for name in status.states if name not in active)
        yield from islice(others, max(0, rows_max - len(active)))


def _is_another(before: Status, status: Status) -> bool:
    """True if another process has answered, with new counters. In containers all may have the same id."""
    return before.pid != status.pid or before.uptime > status.uptime


def positions_of(cursor: Path | None) -> Mapping[str, Position]:
    """Return the positions of a consumer's cursor by topic; none without a file."""
    if cursor is None:
        return {}
    from quoth.cursor import positions_in

    return positions_in(cursor)


def topics_of(client: Client, names: Iterable[str]) -> Iterator[tuple[str, TopicInfo]]:
    """Describe topics, without those that were deleted meanwhile."""
    from quoth import NotFound

    for name in names:
        try:
            yield name, client.topic(name)
        except NotFound:
            continue


def _is_active(states: str) -> bool:
    return bool(states.strip(_HIBERNATING))


def _rates(
    was: TopicInfo | None, info: TopicInfo, seconds: float | None
) -> tuple[float | None, float | None]:
    """Return records and bytes a second; None where there is nothing to compare with."""
    if was is None or not seconds or was.log != info.log:
        return None, None
    records = (_end(info) - _end(was)) / seconds
    if was.first_ordinal != info.first_ordinal:  # an unknown number of bytes was removed
        return records, None
    return records, (info.bytes - was.bytes) / seconds


def _counter_rate(name: str, status: Status, before: _Look | None, seconds: float | None) -> float | None:
    if before is None or not seconds:
        return None
    return (int(status.counters.get(name, 0)) - int(before.status.counters.get(name, 0))) / seconds


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
        return _JUST_ACTIVE if _is_active(row.states) else 0.0
    return rate


_ORDERS: dict[Sort, Callable[[TopicRow], tuple[float, str]]] = {
    "rate": lambda row: (-_known(row.records_per_second, row), row.name),
    "bytes": lambda row: (-_known(row.bytes_per_second, row), row.name),
    "name": lambda row: (0.0, row.name),
    "age": lambda row: (row.age if row.age is not None else math.inf, row.name),
    "lag": lambda row: (-(row.lag_seconds or 0.0), row.name),
}
