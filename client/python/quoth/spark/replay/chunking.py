"""Divides row groups into chunks of a bounded size. Pure: the same groups and limits make the same chunks.

Every record has a position, and positions rise: its original pointer, or the number of its row. A chunk is a
range of positions, `after` excluded and `until` included, so that chunks follow each other without a hole,
whatever lies between two groups. A group is divided only if it exceeds the limits and its positions are
numbers of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

PARTS_A_CHUNK = 4
"""Tasks that stage a full chunk."""


class ChunkLimits(NamedTuple):
    """The limits of a chunk; only an indivisible row group may exceed them. bytes: uncompressed, by the
    footers."""

    records: int = 4_000_000
    bytes: int = 256 * 2**20

    def of_part(self) -> ChunkLimits:
        """The limits of one task."""
        return ChunkLimits(max(1, self.records // PARTS_A_CHUNK), max(1, self.bytes // PARTS_A_CHUNK))


class FileGroup(NamedTuple):
    """A row group of a file.

    bytes: uncompressed, of the columns to read. low, high: the positions of its first and its last record.
    earliest, latest: the times of its records in microseconds, None if the footer does not say.
    """

    path: str
    number: int
    rows: int
    bytes: int
    low: int
    high: int
    earliest: int | None = None
    latest: int | None = None


class ChunkPart(NamedTuple):
    """The work of one task: the positions (after, until] in some neighbouring groups.

    records, bytes: upper bounds. time: the original time of its tick in microseconds, 0 without a rate limit.
    """

    after: int
    until: int
    groups: tuple[FileGroup, ...]
    records: int
    bytes: int
    time: int = 0


class Chunk(NamedTuple):
    """Records that are published at once, in parts that follow each other and have the same time."""

    parts: tuple[ChunkPart, ...]

    @property
    def after(self) -> int:
        """The position behind which it begins."""
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
        """Upper bound of its records."""
        return sum(part.records for part in self.parts)


Times = Callable[[FileGroup], tuple[Any, Any]]
"""Returns the positions of a group's selected records and their times in microseconds, which do not fall: two
arrays of int64 of the same length."""


def by_size(groups: Iterable[FileGroup], after: int, until: int, limits: ChunkLimits) -> Iterator[Chunk]:
    """Divide the positions (after, until]. groups: in the order of their positions."""
    return _packed(_pieces(groups, after, until, limits.of_part()), limits)


def by_time(
    groups: Iterable[FileGroup], after: int, until: int, limits: ChunkLimits, tick: int, times: Times
) -> Iterator[Chunk]:
    """Divide the positions (after, until] so that each chunk is of one tick: so many microseconds."""
    return _packed(_ticked(groups, after, until, limits.of_part(), tick, times), limits)


def _packed(pieces: Iterable[ChunkPart], limits: ChunkLimits) -> Iterator[Chunk]:
    """Join pieces to parts, and parts to chunks."""
    parts = (_joined(run) for run in _runs(pieces, limits.of_part()))
    return (Chunk(tuple(run)) for run in _runs(parts, limits))


def _runs(parts: Iterable[ChunkPart], limits: ChunkLimits) -> Iterator[list[ChunkPart]]:
    """Group neighbours of the same time within the limits."""
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
    """Yield the groups with positions in (after, until], large dense ones in several pieces."""
    last = after
    for group in groups:
        is_dense = group.high - group.low + 1 == group.rows
        count = _count(group.rows, group.bytes, limits) if is_dense else 1
        ends = [group.rows * number // count for number in range(count + 1)]
        for begin, stop in pairwise(ends):
            end = group.high if stop == group.rows else group.low + stop - 1
            if end > after and group.low <= until and last < until:
                size = math.ceil(group.bytes / count)
                yield ChunkPart(last, min(end, until), (group,), stop - begin, size)
                last = min(end, until)


def _ticked(
    groups: Iterable[FileGroup], after: int, until: int, limits: ChunkLimits, tick: int, times: Times
) -> Iterator[ChunkPart]:
    """Yield the records of each group and tick, large ones in several pieces."""
    last = after
    for group in groups:
        if group.high <= after or group.low > until:
            continue
        positions, found = times(group)
        selected = slice(*np.searchsorted(positions, [after, until], "right"))
        positions, ticks = positions[selected], found[selected] // tick
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
    """The number of pieces for so many records and bytes."""
    wanted = max(math.ceil(records / limits.records), math.ceil(size / limits.bytes), 1)
    return min(wanted, max(1, records))
