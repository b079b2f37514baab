"""Stretches of topics as the ranges of tasks: few, large and alike.

A Python task costs Spark some 40 ms whatever it reads, so a topic with much in it is cut into several, and
topics with little in them share one.
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
"""What a task reads at most, about, where nobody says how many tasks there are to be; as with files."""


class Extent(NamedTuple):
    """What a query reads of a topic: so many records, those in (after, until] of its log; -1: all."""

    topic: str
    log: int
    after: int
    until: int
    records: int = -1


def extents_between(start: Offset, end: Offset) -> list[Extent]:
    """What a micro-batch reads."""
    extents = []
    for topic, position in end.topics.items():
        begin: TopicPosition = end.began.get(topic) or start.topics[topic]
        if begin.next < position.next:
            records = max(0, position.ordinal - begin.ordinal)
            extents.append(Extent(topic, position.log, begin.next - 1, position.next - 1, records))
    return extents


def extents_now(ranges: RangeClient, options: Options, lose: Lose) -> list[Extent]:
    """What a batch query reads. Raises `NotFound` for a topic that does not exist."""
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
    """What each task reads, in the order of the topics. What is missing of an extent is told as a loss."""
    counted = list(_counted(ranges, extents, lose))
    records = sum(one.records for one, _ in counted)
    slots = os.cpu_count() or 1  # of the cluster Spark tells no source
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
    """A stretch of a topic's log, of this id, as about so many ranges, none of them empty."""
    cut = ranges.split(topic, after, until, min(parts, PARTS_MAX))
    return [TopicRange(ranges.url, topic, log, *stretch) for stretch in cut]


def tasks_for(size: int, slots: int) -> int:
    """How many tasks so many stored bytes are worth, for workers that do so many at a time."""
    return max(slots, -(-size // PARTITION_BYTES))


def _counted(ranges: RangeClient, extents: Iterable[Extent], lose: Lose) -> Iterator[tuple[Extent, int]]:
    """Those in which there is something, with what is there: records and stored bytes."""
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
    """Small ones together, up to so many records."""
    together: list[TopicRange] = []
    for one in ranges:
        if together and sum(other.records for other in together) + one.records > records:
            yield tuple(together)
            together = []
        together.append(one)
    if together:
        yield tuple(together)
