"""Plans the offsets of a query: its beginning, and the end of each micro-batch.

It needs pointers and ordinals only, which a broker returns in one short request for each topic, without
opening a hibernating one. Spark journals offsets as JSON with all that a restart needs:

    {"quoth": 1,
     "topics": {"orders": {"next": 1767323045000002, "ordinal": 2, "log": "00c0ffee00c0ffee", "lost": 0}},
     "_from": {...}}

`next` is the pointer to continue at and `ordinal` its number in the log, so that losses and lags are
differences. `lost` counts the records that retention removed before they were read.

Spark asks a source for the initial offset twice, and again after a crash in the first batch. "latest" would
be another position each time, and the records between would never be read. So the initial offset is marked by
`_init`, and the end offset of the first batch, which Spark journals before it reads, has the real beginning
in `_from`. Topics that come later have their beginning there, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from quoth.client import Client
from quoth.reported_cursor import described
from quoth.spark.options import EARLIEST, LATEST, OffsetBound, Options
from quoth.spark.source.range_reader import DataLoss, Lose
from quothwire.errors import NotFound, error
from quothwire.protocol.messages import TopicInfo

VERSION = 1


class TopicPosition(NamedTuple):
    """A position in a topic. next: the pointer to continue at. lost: records lost so far."""

    next: int
    ordinal: int
    log: int
    lost: int = 0


Positions = Mapping[str, TopicPosition]


class Offset(NamedTuple):
    """The positions of a query in its topics. began: the beginning of topics that had none before."""

    topics: Positions
    began: Positions = MappingProxyType({})
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON of the journal. Ids are text: not every JSON reader keeps integers of 64 bits."""
        offset: dict[str, Any] = {"quoth": VERSION, "topics": _to_json(self.topics)}
        if self.began:
            offset["_from"] = _to_json(self.began)
        if self.initial:
            offset["_init"] = True
        return offset

    @classmethod
    def from_json(cls, offset: Any) -> Offset:
        """Read the JSON of the journal. Raises ``bad_request`` for an offset of another source."""
        try:
            if offset["quoth"] != VERSION:
                raise ValueError
            began = _from_json(offset.get("_from", {}))
            return cls(_from_json(offset["topics"]), began, bool(offset.get("_init")))
        except (AttributeError, KeyError, TypeError, ValueError):
            text = f"the checkpoint holds an offset of another source or version: {offset!r:.200}"
            hint = "this query needs a checkpoint of its own: set another checkpointLocation"
            raise error("bad_request", text, hint) from None


def _to_json(positions: Positions) -> dict[str, Any]:
    return {topic: {**at._asdict(), "log": f"{at.log:016x}"} for topic, at in sorted(positions.items())}


def _from_json(found: Mapping[str, Any]) -> dict[str, TopicPosition]:
    return {
        topic: TopicPosition(int(one["next"]), int(one["ordinal"]), int(one["log"], 16), int(one["lost"]))
        for topic, one in found.items()
    }


def oldest(broker: Client, info: TopicInfo) -> TopicPosition:
    """The position before all kept records, of which the first ones may be damaged, without pointers."""
    if not info.count:
        return newest(info)
    found = broker.count(info.name, max(0, info.first - 1))
    begins_whole = found.end - found.records == info.first_ordinal
    return TopicPosition(max(1, info.first) if begins_whole else 1, info.first_ordinal, info.log)


def newest(info: TopicInfo) -> TopicPosition:
    """The position behind the newest record."""
    return TopicPosition(info.last + 1, info.first_ordinal + info.count, info.log)


def selected(broker: Client, options: Options) -> list[str]:
    """The topics of a query: those that the options name, or all that match the pattern now."""
    return list(options.topics) or [name for name in broker.topics() if options.means(name)]


def position_at(broker: Client, topic: str, bound: OffsetBound, lose: Lose) -> TopicPosition:
    """The position of a bound in a topic. Raises `NotFound`, or ``bad_pointer`` behind the newest record."""
    info = broker.topic(topic)
    if bound.pointer in (EARLIEST, 0):
        return oldest(broker, info)
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
    found = broker.count(topic, bound.pointer - 1)
    begin = TopicPosition(bound.pointer, found.end - found.records, found.log)
    if found.gone and not bound.is_time:
        lose(DataLoss(topic, bound.pointer - 1, found.first, found.gone, "trimmed"))
        return begin._replace(lost=found.gone)
    return begin


def begin_at(broker: Client, topic: str, options: Options, lose: Lose) -> TopicPosition:
    """The position at which a query begins in a topic: behind what its group has finished, if there is one.

    Raises as `position_at`.
    """
    bound = options.starting.of(topic)
    found = None if options.group is None else described(broker, topic, options.group)
    if found is not None:
        # A power cut may have taken records that were finished, and new ones have higher pointers.
        finished = min(found.after, broker.topic(topic).last)
        bound = OffsetBound(finished + 1 if finished else EARLIEST)
    return position_at(broker, topic, bound, lose)


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
        return self.end._replace(log=self.begin.log, lost=self.begin.lost) if self.records else self.begin


class OffsetPlanner:
    """Plans the micro-batches of a stream. latest: the ends of its topics at the last request.

    Belongs to the process that plans the query. Offsets hold all that a restart needs.
    """

    def __init__(self, broker: Client, options: Options, lose: Lose) -> None:
        self.latest: dict[str, TopicPosition] = {}
        self._broker = broker
        self._options = options
        self._lose = lose
        self._goal: Positions | None = None
        self._grew_at = float("-inf")
        self._missing: set[str] = set()

    def begin(self) -> Offset:
        """The offset at which a new query begins. Topics to come are read from their beginning."""
        starting = self._options.starting
        names = selected(self._broker, self._options)
        starting.check_names(names, "starting offsets")
        begun = {}
        for name in names:
            try:
                begun[name] = begin_at(self._broker, name, self._options, self._lose)
            except NotFound as problem:
                if problem.code != "unknown_topic" or name in starting.each:
                    raise
        return Offset(begun, initial=True)

    def aim(self) -> None:
        """Make the present ends of the present topics the goal of this run."""
        self._look(selected(self._broker, self._options))
        self._goal = self.latest

    def reach(self, start: Offset, *, capped: bool) -> Offset:
        """The end of the next batch; `start` itself if there is nothing to read."""
        known = filter(self._options.means, start.topics)  # others keep their position
        names = dict.fromkeys([*known, *selected(self._broker, self._options)])
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

    def _look(self, names: Iterable[str], known: Positions = MappingProxyType({})) -> list[TopicInfo]:
        """Return the topics that exist; those that were known and do not exist any more are lost."""
        infos = []
        for name in names:
            try:
                infos.append(self._broker.topic(name))
            except NotFound:
                if name in known and name not in self._missing:
                    self._lose(DataLoss(name, known[name].next - 1, 0, -1, "deleted"))
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
            return oldest(self._broker, info)
        if known.log != info.log:
            self._lose(DataLoss(info.name, known.next - 1, info.first, -1, "recreated"))
            return oldest(self._broker, info)._replace(lost=known.lost)
        if known.ordinal < info.first_ordinal:
            records = info.first_ordinal - known.ordinal
            self._lose(DataLoss(info.name, known.next - 1, info.first, records, "trimmed"))
            first = oldest(self._broker, info)
            return first._replace(next=max(first.next, known.next), lost=known.lost + records)
        if info.last >= known.next and newest(info).ordinal <= known.ordinal:
            # A power cut took records that had been read, and new records have their ordinals.
            found = self._broker.count(info.name, known.next - 1)
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
        found = self._broker.advance(one.topic, after, max_records=most, max_bytes=size)
        if found.gone:  # since the backlog was determined
            again = self._backlog(self._broker.topic(one.topic), one.begin)
            if again.begin != one.begin:
                return self._cut(again, records, size)
        next_, ordinal = min(found.until + 1, one.end.next), one.begin.ordinal + found.records
        return one._replace(end=TopicPosition(next_, ordinal, one.end.log))


def share(whole: int, records: int, total: int) -> int:
    """The share of `records` out of `total` in `whole`, rounded up, at least 1."""
    return max(1, -(-whole * records // max(1, total)))
