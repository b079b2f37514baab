"""Plans the offsets of a query: its beginning, and the end of each micro-batch.

It needs pointers and ordinals only, which a broker returns in one short request for each topic, without
opening a hibernating one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from quoth.message import PointerRange
from quoth.spark.options import EARLIEST, LATEST, OffsetBound, Options, check_named
from quoth.spark.source.data_loss import DataLoss, Lose
from quoth.spark.source.offsets import Offset, Positions, TopicPosition
from quothwire.errors import NotFound, error
from quothwire.protocol.messages import Advance, Count, TopicInfo


class RangeClient(Protocol):
    """The requests of a `Client` that concern ranges of topics."""

    @property
    def url(self) -> str:
        """See `Client.url`."""

    def topics(self) -> list[str]:
        """See `Client.topics`."""

    def topic(self, topic: str) -> TopicInfo:
        """See `Client.topic`."""

    def advance(
        self, topic: str, after: int = 0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Advance:
        """See `Client.advance`."""

    def split(self, topic: str, after: int, until: int, parts: int) -> Sequence[PointerRange]:
        """See `Client.split`."""

    def count(self, topic: str, after: int = 0, until: int | None = None) -> Count:
        """See `Client.count`."""


def oldest(ranges: RangeClient, info: TopicInfo) -> TopicPosition:
    """The position before all kept records. Damaged records may lie before the first one with a known
    pointer."""
    if not info.count:
        return newest(info)
    found = ranges.count(info.name, max(0, info.first - 1))
    begins_whole = found.end - found.records == info.first_ordinal
    return TopicPosition(max(1, info.first) if begins_whole else 1, info.first_ordinal, info.log)


def newest(info: TopicInfo) -> TopicPosition:
    """The position behind the newest record."""
    return TopicPosition(info.last + 1, info.first_ordinal + info.count, info.log)


def selected(ranges: RangeClient, options: Options) -> list[str]:
    """The topics of a query: those that the options name, or all that match the pattern now."""
    return list(options.topics) or [name for name in ranges.topics() if options.means(name)]


def position_at(ranges: RangeClient, topic: str, bound: OffsetBound, lose: Lose) -> TopicPosition:
    """The position of a bound in a topic. Raises `NotFound`, or ``bad_pointer`` behind the newest record."""
    info = ranges.topic(topic)
    if bound.pointer in (EARLIEST, 0):
        return oldest(ranges, info)
    if bound.pointer == LATEST:
        return newest(info)
    if bound.pointer > info.last:
        if bound.strict:
            hint = "startingOffsetsByTimestampStrategy=latest begins behind the newest one"
            raise error("bad_pointer", f"topic {topic!r} has no record at that time or later", hint)
        if not bound.is_time and bound.pointer > info.last + 1:
            text = f"topic {topic!r}: {bound.pointer} lies behind the newest record, {info.last}"
            raise error("bad_pointer", text, "latest begins behind the newest one")
        return newest(info)
    found = ranges.count(topic, bound.pointer - 1)
    begin = TopicPosition(bound.pointer, found.end - found.records, found.log)
    if found.gone and not bound.is_time:
        lose(DataLoss(topic, bound.pointer - 1, found.first, found.gone, "trimmed"))
        return begin._replace(lost=found.gone)
    return begin


class Backlog(NamedTuple):
    """The unread records of a topic, from one position to another. bytes: stored bytes of the whole topic."""

    topic: str
    begin: TopicPosition
    end: TopicPosition
    bytes: int

    @property
    def records(self) -> int:
        """The number of unread records."""
        return max(0, self.end.ordinal - self.begin.ordinal) if self.end.next > self.begin.next else 0

    @property
    def reached(self) -> TopicPosition:
        """The position after they have been read."""
        return (
            self.begin._replace(next=self.end.next, ordinal=self.end.ordinal) if self.records else self.begin
        )


class OffsetPlanner:
    """Plans the micro-batches of a stream. latest: the ends of its topics at the last request.

    Belongs to the process that plans the query. Offsets hold all that a restart needs.
    """

    def __init__(self, ranges: RangeClient, options: Options, lose: Lose) -> None:
        self.latest: dict[str, TopicPosition] = {}
        self._ranges = ranges
        self._options = options
        self._lose = lose
        self._goal: Positions | None = None
        self._grew_at = float("-inf")
        self._missing: set[str] = set()

    def begin(self) -> Offset:
        """The offset at which a new query begins. Topics that do not exist yet are read from their
        beginning."""
        starting = self._options.starting
        names = selected(self._ranges, self._options)
        if starting.each:
            check_named(starting, names, "starting offsets")
        begun = {}
        for name in names:
            try:
                bound = starting.each.get(name, starting.everywhere)
                begun[name] = position_at(self._ranges, name, bound, self._lose)
            except NotFound as problem:
                if problem.code != "unknown_topic" or name in starting.each:
                    raise
        return Offset(begun, initial=True)

    def aim(self) -> None:
        """Make the present ends of the present topics the goal of this run."""
        infos = self._look(selected(self._ranges, self._options))
        self._goal = {info.name: newest(info) for info in infos}

    def reach(self, start: Offset, *, capped: bool) -> Offset:
        """The end of the next batch; `start` itself if there is nothing to read."""
        known = filter(self._options.means, start.topics)  # others keep their position
        names = dict.fromkeys([*known, *selected(self._ranges, self._options)])
        backlogs = [
            self._backlog(info, start.topics.get(info.name))
            for info in self._look(names, start.topics)
            if self._goal is None or info.name in self._goal or info.name in start.topics
        ]
        taken = self._limited(backlogs) if capped else backlogs
        topics = {**start.topics, **{one.topic: one.reached for one in taken}}
        if topics == start.topics and not start.initial:
            return start
        changed = {one.topic: one.begin for one in taken if one.begin != start.topics.get(one.topic)}
        return Offset(topics, {**start.topics, **changed} if start.initial else changed)

    def _look(self, names: Iterable[str], known: Positions | None = None) -> list[TopicInfo]:
        """Return the topics that exist; those that were known and do not exist any more are lost."""
        infos = []
        for name in names:
            try:
                infos.append(self._ranges.topic(name))
            except NotFound:
                position = (known or {}).get(name)
                if position is not None and name not in self._missing:
                    self._lose(DataLoss(name, position.next - 1, 0, -1, "deleted"))
                    self._missing.add(name)
        self.latest = {info.name: newest(info) for info in infos}
        return infos

    def _backlog(self, info: TopicInfo, known: TopicPosition | None) -> Backlog:
        begin = self._begin(info, known)
        end = newest(info)
        if self._goal is not None:
            goal = self._goal.get(info.name, begin)
            end = min(goal, end) if goal.log == info.log else begin
        return Backlog(info.name, begin, end, info.bytes)

    def _begin(self, info: TopicInfo, known: TopicPosition | None) -> TopicPosition:
        """The position to continue at, behind lost records."""
        if known is None:
            return oldest(self._ranges, info)
        if known.log != info.log:
            self._lose(DataLoss(info.name, known.next - 1, info.first, -1, "recreated"))
            return oldest(self._ranges, info)._replace(lost=known.lost)
        if known.ordinal < info.first_ordinal:
            records = info.first_ordinal - known.ordinal
            self._lose(DataLoss(info.name, known.next - 1, info.first, records, "trimmed"))
            first = oldest(self._ranges, info)
            return first._replace(next=max(first.next, known.next), lost=known.lost + records)
        if info.last >= known.next and newest(info).ordinal <= known.ordinal:
            # A power cut took records that had been read, and new records have their ordinals.
            found = self._ranges.count(info.name, known.next - 1)
            return known._replace(ordinal=found.end - found.records)
        return known

    def _limited(self, backlogs: Sequence[Backlog]) -> list[Backlog]:
        """Limit backlogs to one batch. Each topic has its share of the limits, rounded up."""
        options, total = self._options, sum(one.records for one in backlogs)
        now = time.monotonic()
        if self._goal is None and total < options.records_min and now < self._grew_at + options.delay:
            return [one._replace(end=one.begin) for one in backlogs]
        if not total:
            return list(backlogs)
        self._grew_at = now
        limits = options.records_max, options.bytes_max
        return [self._cut(one, *(share(most, one.records, total) for most in limits)) for one in backlogs]

    def _cut(self, one: Backlog, records: int, size: int) -> Backlog:
        """Limit one backlog to so many records and stored bytes."""
        if not one.records or (one.records <= records and one.bytes <= size):
            return one
        after, most = one.begin.next - 1, min(records, one.records)
        found = self._ranges.advance(one.topic, after, max_records=most, max_bytes=size)
        if found.gone:  # since the backlog was determined
            again = self._backlog(self._ranges.topic(one.topic), one.begin)
            if again.begin != one.begin:
                return self._cut(again, records, size)
        next_, ordinal = min(found.until + 1, one.end.next), one.begin.ordinal + found.records
        return one._replace(end=TopicPosition(next_, ordinal, one.end.log))


def share(whole: int, records: int, total: int) -> int:
    """The share of `records` out of `total` in `whole`, rounded up, at least 1."""
    return max(1, -(-whole * records // max(1, total)))
