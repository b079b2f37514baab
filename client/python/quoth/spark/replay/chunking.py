"""Row groups cut into chunks of a bounded size. Pure: the same groups and limits make the same chunks.

Every record has a position, which rises: its original pointer, or the number of its row. What is cut is a
stretch of positions, `after` excluded and `until` included, so that chunks follow each other without a hole,
whatever lies between two groups. A group is a task's work as a whole, unless it is beyond the limits and its
positions count its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

PARTS_A_CHUNK = 4
"""So many tasks stage a chunk, if it is full."""


class ChunkLimits(NamedTuple):
    """What a chunk holds at most, unless a single row group has more that cannot be cut. bytes: before they
    become batches, as the footers tell them."""

    records: int = 4_000_000
    bytes: int = 256 * 2**20

    def of_part(self) -> ChunkLimits:
        """Those of one task."""
        return ChunkLimits(max(1, self.records // PARTS_A_CHUNK), max(1, self.bytes // PARTS_A_CHUNK))


class FileGroup(NamedTuple):
    """A row group of a file. low, high: the positions of its first and its last record."""

    path: str
    number: int
    rows: int
    bytes: int
    low: int
    high: int


class ChunkPart(NamedTuple):
    """The work of one task: what lies behind `after` and not behind `until` in some neighbouring groups.

    records, bytes: how much that is at most. time: when it belongs into the topic, in original microseconds;
    0 if that makes no difference.
    """

    after: int
    until: int
    groups: tuple[FileGroup, ...]
    records: int
    bytes: int
    time: int = 0


class Chunk(NamedTuple):
    """What is published at once. Its parts follow each other, all of one time."""

    parts: tuple[ChunkPart, ...]

    @property
    def after(self) -> int:
        """It begins behind this position."""
        return self.parts[0].after

    @property
    def until(self) -> int:
        """The position up to which everything is replayed once it is published."""
        return self.parts[-1].until

    @property
    def time(self) -> int:
        """See `ChunkPart.time`."""
        return self.parts[0].time

    @property
    def records(self) -> int:
        """So many at most."""
        return sum(part.records for part in self.parts)

    @property
    def bytes(self) -> int:
        """So many at most."""
        return sum(part.bytes for part in self.parts)

    def behind(self, position: int) -> Chunk | None:
        """What of it lies behind a position."""
        left = [_behind(part, position) for part in self.parts if part.until > position]
        return Chunk(tuple(left)) if left else None


Moments = Callable[[FileGroup], tuple[Any, Any]]
"""The positions of a group's records and their times in microseconds, as arrays of int64 of one length: those
records of the group that are wanted. Times do not fall."""


def by_size(groups: Iterable[FileGroup], after: int, until: int, limits: ChunkLimits) -> Iterator[Chunk]:
    """Cut the stretch from one position to another. groups: in the order of their positions."""
    return _packed(_pieces(groups, after, until, limits.of_part()), limits)


def by_time(
    groups: Iterable[FileGroup], after: int, until: int, limits: ChunkLimits, tick: int, moments: Moments
) -> Iterator[Chunk]:
    """The same, so that each chunk holds records of one tick: so many microseconds of original time."""
    return _packed(_ticked(groups, after, until, limits.of_part(), tick, moments), limits)


def _packed(pieces: Iterable[ChunkPart], limits: ChunkLimits) -> Iterator[Chunk]:
    """Pieces joined to parts, and these to chunks."""
    parts = (_joined(run) for run in _runs(pieces, limits.of_part()))
    return (Chunk(tuple(run)) for run in _runs(parts, limits))


def _runs(parts: Iterable[ChunkPart], limits: ChunkLimits) -> Iterator[list[ChunkPart]]:
    """Neighbours of the same time, as many as the limits allow."""
    run: list[ChunkPart] = []
    records = size = 0
    for part in parts:
        records, size = records + part.records, size + part.bytes
        if run and (part.time != run[0].time or records > limits.records or size > limits.bytes):
            yield run
            run, records, size = [], part.records, part.bytes
        run.append(part)
    if run:
        yield run


def _joined(run: list[ChunkPart]) -> ChunkPart:
    groups = tuple(dict.fromkeys(group for part in run for group in part.groups))
    records, size = sum(part.records for part in run), sum(part.bytes for part in run)
    return ChunkPart(run[0].after, run[-1].until, groups, records, size, run[0].time)


def _pieces(groups: Iterable[FileGroup], after: int, until: int, limits: ChunkLimits) -> Iterator[ChunkPart]:
    """The groups that hold something of a stretch, one after the other, large ones in several pieces."""
    last = after
    for group in groups:
        for end, records, size in _slices(group, limits):
            if end > after and group.low <= until and last < until:
                yield ChunkPart(last, min(end, until), (group,), records, size)
                last = min(end, until)


def _slices(group: FileGroup, limits: ChunkLimits) -> Iterator[tuple[int, int, int]]:
    """Where each piece of a group ends, with its records and bytes."""
    is_dense = group.high - group.low + 1 == group.rows
    count = _count(group.rows, group.bytes, limits) if is_dense else 1
    done = 0
    for number in range(1, count + 1):
        rows = group.rows * number // count
        end = group.high if number == count else group.low + rows - 1
        yield end, rows - done, math.ceil(group.bytes / count)
        done = rows


def _ticked(
    groups: Iterable[FileGroup], after: int, until: int, limits: ChunkLimits, tick: int, moments: Moments
) -> Iterator[ChunkPart]:
    """The records of each group and tick, large ones in several pieces."""
    last = after
    for group in groups:
        if group.high <= after or group.low > until:
            continue
        positions, times = moments(group)
        chosen = slice(*np.searchsorted(positions, [after, until], "right"))
        positions, ticks = positions[chosen], times[chosen] // tick
        bounds = [0, *(np.flatnonzero(np.diff(ticks)) + 1).tolist(), len(ticks)]
        width = math.ceil(group.bytes / group.rows)
        for begin, end in pairwise(bounds):
            count = _count(end - begin, (end - begin) * width, limits)
            ends = [begin + (end - begin) * number // count for number in range(count + 1)]
            for first, stop in pairwise(ends):
                if first < stop:
                    position, rows = int(positions[stop - 1]), stop - first
                    yield ChunkPart(last, position, (group,), rows, rows * width, int(ticks[first]) * tick)
                    last = position


def _count(records: int, size: int, limits: ChunkLimits) -> int:
    """Into how many pieces so much is cut."""
    wanted = max(math.ceil(records / limits.records), math.ceil(size / limits.bytes), 1)
    return min(wanted, max(1, records))


def _behind(part: ChunkPart, position: int) -> ChunkPart:
    groups = tuple(group for group in part.groups if group.high > position)
    return part._replace(after=max(part.after, position), groups=groups)
