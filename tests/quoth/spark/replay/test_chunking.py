"""Cutting row groups into chunks: nothing twice, nothing left out, the same wherever a run begins."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.scale import times
from quoth.spark.replay.chunking import Chunk, ChunkLimits, ChunkPart, FileGroup, by_size, by_time

LIMITS = ChunkLimits(records=40, bytes=4_000)
examples = settings(max_examples=times(40, 400))

Positions = dict[FileGroup, list[int]]
"""The positions of the records of each group."""


@st.composite
def files(draw: st.DrawFn, *, dense: bool | None = None) -> Positions:
    """Row groups with rising positions; dense: those that number their rows, or those that do not."""
    found: Positions = {}
    last = 0
    for number in range(draw(st.integers(0, 12))):
        rows = draw(st.integers(1, 130))
        steps = 1 if dense or (dense is None and draw(st.booleans())) else 7
        low = last + draw(st.integers(1, 1 if dense else 50))
        positions = list(range(low, low + rows * steps, steps))
        group = FileGroup(
            f"file {number // 3}", number % 3, rows, draw(st.integers(0, 9_000)), low, positions[-1]
        )
        found[group] = positions
        last = positions[-1]
    return found


def records_of(chunks: Iterable[Chunk], files: Positions) -> list[list[int]]:
    """The records that tasks would read from the files, chunk by chunk."""
    return [[one for part in chunk.parts for one in records_in(part, files)] for chunk in chunks]


def records_in(part: ChunkPart, files: Positions) -> list[int]:
    return [one for group in part.groups for one in files[group] if part.after < one <= part.until]


def everything(files: Positions) -> list[int]:
    return [one for positions in files.values() for one in positions]


ranges = st.tuples(st.integers(0, 4_000), st.integers(0, 4_000)).map(sorted)


any_limits = st.sampled_from(
    [LIMITS, LIMITS, ChunkLimits(1, 1), ChunkLimits(3, 10**9), ChunkLimits(10**9, 3)]
)


@examples
@given(files(), ranges, any_limits)
def test_each_record_of_a_range_is_in_one_chunk_and_chunks_follow_each_other_without_a_hole(
    files: Positions, bounds: list[int], limits: ChunkLimits
) -> None:
    after, until = bounds
    chunks = list(by_size(files, after, until, limits))
    taken = [one for chunk in records_of(chunks, files) for one in chunk]
    assert taken == [one for one in everything(files) if after < one <= until]
    parts = [part for chunk in chunks for part in chunk.parts]
    assert all(part.after < part.until for part in parts)
    assert all(one.until == following.after for one, following in pairwise(parts))
    if parts:
        assert (parts[0].after, parts[-1].until <= until) == (after, True)


@examples
@given(files())
def test_only_a_group_that_cannot_be_divided_exceeds_the_limits(files: Positions) -> None:
    for chunk in by_size(files, 0, 10_000, LIMITS):
        pieces = [(LIMITS, chunk.parts), *((LIMITS.of_part(), (part,)) for part in chunk.parts)]
        for limits, parts in pieces:
            groups = {group for part in parts for group in part.groups}
            records = sum(len(records_in(part, files)) for part in parts)
            if len(groups) > 1 or any(group.high - group.low + 1 == group.rows for group in groups):
                assert records <= limits.records
                assert sum(part.bytes for part in parts) <= limits.bytes or records <= 1


@examples
@given(files())
def test_continued_run_has_the_remaining_chunks_of_the_first_run(files: Positions) -> None:
    whole = list(by_size(files, 0, 10_000, LIMITS))
    for number, chunk in enumerate(whole, 1):
        assert list(by_size(files, chunk.until, 10_000, LIMITS)) == whole[number:]


@examples
@given(files(), st.integers(1, 11))
def test_grown_archive_has_the_same_chunks_up_to_the_last_one(files: Positions, count: int) -> None:
    before = dict(list(files.items())[:count])
    early, late = (list(by_size(some, 0, 10_000, LIMITS)) for some in (before, files))
    assert early[:-1] == late[: len(early) - 1]


@examples
@given(files(), st.integers(0, 4_000), st.integers(0, 4_000), st.integers(1, 500), st.integers(0, 3))
def test_chunks_of_a_tick_hold_each_wanted_record_once_at_its_time(
    files: Positions, after: int, since: int, tick: int, pause: int
) -> None:
    times = {one: one * (1 + pause) for one in everything(files) if one > since}

    def times_in(group: FileGroup) -> tuple[Any, Any]:
        wanted = [one for one in files[group] if one > since]
        return np.array(wanted, int), np.array([times[one] for one in wanted], int)

    chunks = list(by_time(files, after, 3_000, LIMITS, tick, times_in))
    taken = [[one for one in records if one > since] for records in records_of(chunks, files)]
    assert [one for chunk in taken for one in chunk] == [one for one in times if after < one <= 3_000]
    for chunk, records in zip(chunks, taken, strict=True):
        assert records
        assert {times[one] // tick * tick for one in records} == {chunk.time}
        assert chunk.until == records[-1]
        assert len(records) <= LIMITS.records


def test_large_group_with_numbered_rows_is_cut_evenly() -> None:
    group = FileGroup("a", 0, 100, 10_000, 1, 100)
    chunks = list(by_size([group], 0, 100, LIMITS))
    assert [(part.after, part.until) for chunk in chunks for part in chunk.parts] == [
        (at, at + 10) for at in range(0, 100, 10)
    ]
    assert [chunk.records for chunk in chunks] == [40, 40, 20]


def test_small_groups_share_a_part() -> None:
    groups = [FileGroup("a", number, 5, 10, 5 * number + 1, 5 * number + 5) for number in range(10)]
    [chunk, rest] = by_size(groups, 0, 50, LIMITS)
    assert [len(part.groups) for part in chunk.parts] == [2, 2, 2, 2]
    assert (chunk.after, chunk.until, rest.after, rest.until) == (0, 40, 40, 50)
