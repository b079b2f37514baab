"""The ranges of a query as tasks: few, large and alike.

A Python task costs Spark some 40 ms whatever it reads, so a topic with much in it is cut into several, and
topics with little in them share one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quoth.spark.losses import Loss
from quoth.spark.offsets import Offset, Position
from quoth.spark.options import LATEST, Options, check_named
from quoth.spark.planning import Lose, Ranges, position_at, selected
from quothwire.errors import NotFound
from quothwire.message import PARTS_MAX

PARTITION_BYTES = 128 * 2**20
"""What a task reads at most, about, where nobody says how many tasks there are to be; as with files."""


class Extent(NamedTuple):
    """What a query reads of a topic: so many records, those in (after, until] of its log; -1: all."""

    topic: str
    log: int
    after: int
    until: int
    records: int = -1


class Portion(NamedTuple):
    """What a task reads of a topic: so many records, those in (after, until] of its log."""

    topic: str
    log: int
    after: int
    until: int
    records: int


def extents_between(start: Offset, end: Offset) -> list[Extent]:
    """What a micro-batch reads."""
    extents = []
    for topic, position in end.topics.items():
        begin: Position = end.began.get(topic) or start.topics[topic]
        if begin.next < position.next:
            records = max(0, position.ordinal - begin.ordinal)
            extents.append(Extent(topic, position.log, begin.next - 1, position.next - 1, records))
    return extents


def extents_now(ranges: Ranges, options: Options, lose: Lose) -> list[Extent]:
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
    ranges: Ranges, extents: Iterable[Extent], options: Options, lose: Lose
) -> list[tuple[Portion, ...]]:
    """What each task reads, in the order of the topics. What is missing of an extent is told as a loss."""
    counted = list(_counted(ranges, extents, lose))
    records = sum(one.records for one, _ in counted)
    wanted = options.partitions_min or _tasks(sum(size for _, size in counted))
    portions: list[Portion] = []
    for extent, _ in counted:
        parts = -(-wanted * extent.records // records)
        if options.partition_records:
            parts = max(parts, -(-extent.records // options.partition_records))
        found = ranges.split(extent.topic, extent.after, extent.until, min(parts, PARTS_MAX))
        _compare(extent, sum(one.records for one in found), lose)
        portions += [Portion(extent.topic, extent.log, one.after, one.until, one.records) for one in found]
    if len(portions) <= wanted:
        return [(portion,) for portion in portions]
    return list(_shared(portions, min(max(1, records // wanted), options.partition_records or records)))


def _tasks(size: int) -> int:
    """How many tasks, for so many bytes. How many there can be at once Spark tells no source."""
    return max(os.cpu_count() or 1, -(-size // PARTITION_BYTES))


def _counted(ranges: Ranges, extents: Iterable[Extent], lose: Lose) -> Iterator[tuple[Extent, int]]:
    """Those in which there is something, with what is there: records and stored bytes."""
    for extent in extents:
        try:
            found = ranges.count(extent.topic, extent.after, extent.until)
        except NotFound:
            lose(Loss(extent.topic, extent.after, extent.until + 1, extent.records, "deleted"))
            continue
        if found.log != extent.log:
            lose(Loss(extent.topic, extent.after, extent.until + 1, extent.records, "recreated"))
            continue
        _compare(extent, found.records, lose)
        if found.records:
            yield extent._replace(records=found.records), found.bytes


def _compare(extent: Extent, records: int, lose: Lose) -> None:
    if records < extent.records:
        missing = extent.records - records
        lose(Loss(extent.topic, extent.after, extent.until + 1, missing, "removed"))


def _shared(portions: Iterable[Portion], records: int) -> Iterator[tuple[Portion, ...]]:
    """Small portions together, up to so many records."""
    together: list[Portion] = []
    for portion in portions:
        if together and sum(one.records for one in together) + portion.records > records:
            yield tuple(together)
            together = []
        together.append(portion)
    if together:
        yield tuple(together)
