"""Divides ranges of topics among tasks: few, large and alike.

A Python task costs Spark some 40 ms, whatever it reads. So a large topic is divided among several tasks, and
small topics share one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quoth.spark.options import LATEST, Options, check_named
from quoth.spark.source.data_loss import DataLoss, Lose
from quoth.spark.source.offset_planner import RangeClient, position_at, selected, share
from quoth.spark.source.offsets import Offset, TopicPosition
from quoth.spark.source.range_reader import TopicRange
from quothwire.errors import NotFound
from quothwire.protocol.messages import PARTS_MAX

PARTITION_BYTES = 128 * 2**20
"""Stored bytes that a task reads, about, unless an option sets the number of tasks; as Spark does for
files."""


class Extent(NamedTuple):
    """The records (after, until] of a topic's log. records: their number, -1 for all that exist."""

    topic: str
    log: int
    after: int
    until: int
    records: int = -1


def extents_between(start: Offset, end: Offset) -> list[Extent]:
    """The extents of a micro-batch."""
    extents = []
    for topic, position in end.topics.items():
        begin: TopicPosition = end.began.get(topic) or start.topics[topic]
        if begin.next < position.next:
            records = max(0, position.ordinal - begin.ordinal)
            extents.append(Extent(topic, position.log, begin.next - 1, position.next - 1, records))
    return extents


def extents_now(ranges: RangeClient, options: Options, lose: Lose) -> list[Extent]:
    """The extents of a batch query. Raises `NotFound` for a topic that does not exist."""
    extents = []
    names = selected(ranges, options)
    for bounds, what in ((options.starting, "starting offsets"), (options.ending, "ending offsets")):
        if bounds.each:
            check_named(bounds, names, what)
    for name in names:
        begin = position_at(ranges, name, options.starting.each.get(name, options.starting.everywhere), lose)
        end = options.ending.each.get(name, options.ending.everywhere).pointer
        until = ranges.topic(name).last if end == LATEST else end - 1
        if begin.next <= until:
            extents.append(Extent(name, begin.log, begin.next - 1, until))
    return extents


def partitions(
    ranges: RangeClient, extents: Iterable[Extent], options: Options, lose: Lose
) -> list[tuple[TopicRange, ...]]:
    """The ranges of each task, in the order of the topics. Missing records of an extent are reported as a
    loss."""
    counted = list(_counted(ranges, extents, lose))
    records = sum(one.records for one, _ in counted)
    slots = os.cpu_count() or 1  # Spark does not tell a source the size of its cluster
    wanted = options.partitions_min or tasks_for(sum(size for _, size in counted), slots)
    found: list[TopicRange] = []
    for extent, _ in counted:
        parts = share(wanted, extent.records, records)
        if options.partition_records:
            parts = max(parts, -(-extent.records // options.partition_records))
        cut = split(ranges, extent.topic, extent.log, extent.after, extent.until, parts)
        _compare(extent, sum(one.records for one in cut), lose)
        found += cut
    if len(found) <= wanted:
        return [(one,) for one in found]
    return list(_together(found, min(max(1, records // wanted), options.partition_records or records)))


def split(ranges: RangeClient, topic: str, log: int, after: int, until: int, parts: int) -> list[TopicRange]:
    """Divide the records (after, until] of the log with this id into about so many ranges, none of them
    empty."""
    found = ranges.split(topic, after, until, min(parts, PARTS_MAX))
    return [TopicRange(ranges.url, topic, log, *one) for one in found]


def tasks_for(size: int, slots: int) -> int:
    """The number of tasks for so many stored bytes and so many slots of the workers."""
    return max(slots, -(-size // PARTITION_BYTES))


def _counted(ranges: RangeClient, extents: Iterable[Extent], lose: Lose) -> Iterator[tuple[Extent, int]]:
    """The extents that have records, with the number of those, and their stored bytes."""
    for extent in extents:
        try:
            found = ranges.count(extent.topic, extent.after, extent.until)
        except NotFound:
            lose(DataLoss(extent.topic, extent.after, extent.until + 1, extent.records, "deleted"))
            continue
        if found.log != extent.log:
            lose(DataLoss(extent.topic, extent.after, extent.until + 1, extent.records, "recreated"))
            continue
        _compare(extent, found.records, lose)
        if found.records:
            yield extent._replace(records=found.records), found.bytes


def _compare(extent: Extent, records: int, lose: Lose) -> None:
    if records < extent.records:
        missing = extent.records - records
        lose(DataLoss(extent.topic, extent.after, extent.until + 1, missing, "trimmed"))


def _together(ranges: Iterable[TopicRange], records: int) -> Iterator[tuple[TopicRange, ...]]:
    """Join small ranges, up to so many records."""
    together: list[TopicRange] = []
    for one in ranges:
        if together and sum(other.records for other in together) + one.records > records:
            yield tuple(together)
            together = []
        together.append(one)
    if together:
        yield tuple(together)
