"""Divides ranges of topics among tasks: few, large and alike.

A Python task costs Spark some 40 ms, whatever it reads. So a large topic is divided among several tasks, and
small topics share one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from quoth.client import Client
from quoth.spark.options import LATEST, Options
from quoth.spark.source.offset_planner import Offset, begin_at, selected, share
from quoth.spark.source.range_reader import DataLoss, Lose, TopicRange
from quothwire.errors import NotFound
from quothwire.protocol.messages import PARTS_MAX

PARTITION_BYTES = 128 * 2**20
"""About the stored bytes of a task, unless an option sets the number of tasks; as Spark does for files."""


def extents_between(url: str, start: Offset, end: Offset) -> list[TopicRange]:
    """The extents of a micro-batch: a range of each topic, whose bytes are not known yet, without the key."""
    extents = []
    for topic, position in end.topics.items():
        begin = end.began.get(topic) or start.topics[topic]
        if begin.next < position.next:
            records = max(0, position.ordinal - begin.ordinal)
            extents.append(
                TopicRange(url, topic, position.log, begin.next - 1, position.next - 1, records, 0)
            )
    return extents


def extents_now(broker: Client, options: Options, lose: Lose) -> list[TopicRange]:
    """The extents of a batch query, with -1 records: all that exist. Raises `NotFound` for a topic."""
    extents = []
    names = selected(broker, options)
    options.starting.check_names(names, "starting offsets")
    options.ending.check_names(names, "ending offsets")
    for name in names:
        begin = begin_at(broker, name, options, lose)
        end = options.ending.of(name).pointer
        until = broker.topic(name).last if end == LATEST else end - 1
        if begin.next <= until:
            extents.append(TopicRange(broker.url, name, begin.log, begin.next - 1, until, -1, 0))
    return extents


def partitions(
    broker: Client, extents: Iterable[TopicRange], options: Options, lose: Lose
) -> list[list[TopicRange]]:
    """The ranges of each task, in the order of the topics. Missing records of an extent are a loss."""
    counted = list(_counted(broker, extents, lose))
    records = sum(one.records for one in counted)
    slots = os.cpu_count() or 1  # Spark does not tell a source the size of its cluster
    wanted = options.partitions_min or tasks_for(sum(one.bytes for one in counted), slots)
    found: list[TopicRange] = []
    for extent in counted:
        parts = share(wanted, extent.records, records)
        if options.partition_records:
            parts = max(parts, -(-extent.records // options.partition_records))
        cut = split(broker, extent.topic, extent.log, extent.after, extent.until, parts, options.key)
        _compare(extent, sum(one.records for one in cut), lose)
        found += cut
    if len(found) <= wanted:
        return [[one] for one in found]
    most = min(max(1, records // wanted), options.partition_records or records)
    tasks: list[list[TopicRange]] = []
    for one in found:
        if tasks and sum(other.records for other in tasks[-1]) + one.records <= most:
            tasks[-1].append(one)
        else:
            tasks.append([one])
    return tasks


def split(
    broker: Client, topic: str, log: int, after: int, until: int, parts: int, key: str | None = None
) -> list[TopicRange]:
    """Divide the records (after, until] of a log into about so many ranges, none of them empty.

    key: the path of the key file with which tasks read them.
    """
    found = broker.split(topic, after, until, min(parts, PARTS_MAX))
    return [TopicRange(broker.url, topic, log, *one, key) for one in found]


def tasks_for(size: int, slots: int) -> int:
    """The number of tasks for so many stored bytes and so many slots of the workers."""
    return max(slots, -(-size // PARTITION_BYTES))


def _counted(broker: Client, extents: Iterable[TopicRange], lose: Lose) -> Iterator[TopicRange]:
    """The extents that have records, with their number and bytes."""
    for extent in extents:
        try:
            found = broker.count(extent.topic, extent.after, extent.until)
        except NotFound:
            lose(DataLoss(extent.topic, extent.after, extent.until + 1, extent.records, "deleted"))
            continue
        if found.log != extent.log:
            lose(DataLoss(extent.topic, extent.after, extent.until + 1, extent.records, "recreated"))
            continue
        _compare(extent, found.records, lose)
        if found.records:
            yield extent._replace(records=found.records, bytes=found.bytes)


def _compare(extent: TopicRange, records: int, lose: Lose) -> None:
    if records < extent.records:
        missing = extent.records - records
        lose(DataLoss(extent.topic, extent.after, extent.until + 1, missing, "trimmed"))
