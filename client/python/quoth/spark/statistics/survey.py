"""A survey: stretches of topics as windows, by tasks that read a range each.

Spark SQL over `format("quoth")` would do it, too, at a tenth of the speed: every value would pass through
the JVM for its length. What passes here from a task to the driver is a row for each window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from quoth.client import Client
from quoth.message import Gap
from quoth.spark.source.offset_planner import share
from quoth.spark.source.offsets import TopicPosition
from quoth.spark.source.partitioning import split, tasks_for
from quoth.spark.source.range_reader import TopicRange
from quoth.spark.statistics.windows import Window, windows_in
from quoth.spark.workers import Workers, perform
from quoth.timestamps import now
from quothwire.protocol.messages import Count


class SurveyRange(NamedTuple):
    """What is looked at of a topic: the records behind the pointer `after`, up to `until`, which is included.

    ordinal: how many records the topic had held by `after`, -1 if nobody has counted.
    """

    topic: str
    after: int
    until: int
    ordinal: int = -1


class WindowRow(NamedTuple):
    """A window as it is told; see `Window` for what is not explained here.

    start, end: as pointers, the end is not included. bytes: of keys and values. records_per_s, bytes_per_s:
    over that part of the window that was looked at. behind_records, behind_s: from its last record to the
    newest one of the topic, None if it has none. age_s: how long it is over.
    """

    topic: str
    start: int
    end: int
    records: int
    missing: int
    value_bytes: int
    key_bytes: int
    records_per_s: float
    bytes_per_s: float
    keyed: int
    keys: int
    largest: int
    largest_pointer: int
    first: int
    last: int
    behind_records: int | None
    behind_s: float | None
    age_s: float


class Survey(NamedTuple):
    """What was found: a row for each window in which something is, topic by topic in the order of time.

    gaps: what could not be read. What retention took in front of a stretch is no part of any window; it is at
    most so many if the stretch begins at a time. reached: how far each topic has been looked at.
    """

    rows: list[WindowRow]
    gaps: list[Gap]
    reached: dict[str, TopicPosition]


class _Plan(NamedTuple):
    """A stretch with what there is to read. there: all that is kept behind its beginning."""

    stretch: SurveyRange
    there: Count
    records: int
    ranges: list[TopicRange]

    @property
    def first(self) -> int:
        """The ordinal of the oldest record that is there."""
        return self.there.end - self.there.records

    def gaps(self) -> Iterator[Gap]:
        """What is gone already."""
        topic, after, until, ordinal = self.stretch
        gone = self.there.gone if ordinal < 0 else max(0, self.first - ordinal)
        gone += self.records - sum(one.records for one in self.ranges)  # since it was counted
        if gone:
            begin = max(self.there.first, self.ranges[0].after + 1 if self.ranges else 0)
            yield Gap(topic, after, begin or until + 1, gone, "trimmed", ordinal)

    def reached(self) -> TopicPosition:
        """How far the topic is looked at after that."""
        return TopicPosition(self.stretch.until + 1, self.first + self.records, self.there.log)


def survey(broker: Client, workers: Workers, stretches: Sequence[SurveyRange], width: int) -> Survey:
    """Look at stretches of topics, at most one of each. width: of a window, in microseconds.

    What is damaged or removed is told, not raised. Raises `NotFound` ``unknown_topic`` for topics that do not
    exist or are made anew meanwhile, `Disconnected`.
    """
    plans = list(_planned(broker, stretches, workers.slots))
    at = now()
    ranges = [one for plan in plans for one in plan.ranges]
    outcomes = iter(perform(workers, partial(windows_in, width), ranges, broker.url))
    rows, gaps = [], []
    for plan in plans:
        found = [next(outcomes) for _ in plan.ranges]
        gaps += [*plan.gaps(), *(gap for one in found for gap in one.gaps)]
        windows = joined(chain.from_iterable(one.windows for one in found))
        rows += [_row(window, plan, width, at) for window in windows]
    return Survey(rows, gaps, {plan.stretch.topic: plan.reached() for plan in plans})


def joined(windows: Iterable[Window]) -> list[Window]:
    """Windows in order, those together that are parts of one."""
    found: list[Window] = []
    for window in windows:
        if found and found[-1].start == window.start:
            found[-1] = found[-1].joined(window)
        else:
            found.append(window)
    return found


def _planned(broker: Client, stretches: Sequence[SurveyRange], slots: int) -> Iterator[_Plan]:
    counted = [_counted(broker, stretch) for stretch in stretches]
    records = sum(found.records for _, found in counted)
    tasks = tasks_for(sum(found.bytes for _, found in counted), slots)
    for stretch, (there, found) in zip(stretches, counted, strict=True):
        parts = share(tasks, found.records, records)
        ranges = split(broker, stretch.topic, there.log, stretch.after, stretch.until, parts)
        yield _Plan(stretch, there, found.records, ranges)


def _counted(broker: Client, stretch: SurveyRange) -> tuple[Count, Count]:
    """What is kept behind the beginning of a stretch, and of that in the stretch."""
    while True:  # until it was neither made anew nor trimmed between the two questions
        there = broker.count(stretch.topic, stretch.after)
        found = broker.count(stretch.topic, stretch.after, stretch.until)
        if (there.log, there.gone) == (found.log, found.gone):
            return there, found


def _row(window: Window, plan: _Plan, width: int, at: int) -> WindowRow:
    content: dict[str, Any] = {
        name: value for name, value in window._asdict().items() if name in WindowRow._fields
    }
    end = window.start + width
    covered = min(end, plan.stretch.until + 1) - max(window.start, plan.stretch.after + 1)
    seconds = (covered if covered > 0 else width) / 1e6
    return WindowRow(
        **content,
        end=end,
        records_per_s=window.records / seconds,
        bytes_per_s=(window.value_bytes + window.key_bytes) / seconds,
        behind_records=max(0, plan.there.end - window.next_ordinal) if window.records else None,
        behind_s=max(0, plan.there.newest - window.last) / 1e6 if window.records else None,
        age_s=max(0, at - end) / 1e6,
    )
