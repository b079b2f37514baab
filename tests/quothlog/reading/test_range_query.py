"""Ranges: whatever is asked of a survey, it says what a look at every single record says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.clocks import ManualClock
from kit.disk.damage import flip, swap_files, zero
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, boundaries, encoded, fill, put, segments
from kit.scale import times
from quothlog import Log, LogOptions
from quothlog.reading.range_query import LogSurvey, RangeCount, RangeSize
from quothwire import batch
from quothwire.headers import encode_headers
from quothwire.pointer import POINTER_MAX

ALL = 2**63 - 1

Batches = list[tuple[int, int, int]]
"""First pointer, records, bytes of each."""


@contextmanager
def grown(seed: int) -> Iterator[tuple[Log, Batches]]:
    """A log of batches of all sizes in segments of all sizes, perhaps trimmed, and its batches."""
    rng = random.Random(seed)
    size_limit = rng.choice((400, 3_000, 100_000, 2**26))
    clock = ManualClock(tick=rng.choice((1, 1_000)))
    options = LogOptions(size_limit=size_limit)
    disk = FaultyDisk(syncs=False)
    with (
        TemporaryDirectory(prefix="quoth-ranges-") as at,
        Log.open(at, options=options, clock=clock, filesystem=disk) as log,
    ):
        stored: Batches = []
        for _ in range(rng.randrange(80)):
            values = [bytes(rng.choice((0, 1, 30))) for _ in range(rng.choice((1, 1, 2, 3, 10, 100)))]
            keys = [rng.choice((None, b"k")) for _ in values] if rng.random() < 0.3 else None
            headers = [encode_headers({"h": b"x"}) for _ in values] if rng.random() < 0.3 else None
            raw = batch.encode(values, keys, headers)
            stored.append((put(log, raw)[0].first, len(values), len(raw)))
            if rng.random() < 0.1:
                log.roll()
        if stored and rng.random() < 0.4:
            log.trim(rng.choice(stored)[0])
        yield log, stored


def records_of(log: Log, stored: Batches) -> list[int]:
    """The pointers that are kept."""
    return [base + i for base, count, _ in stored for i in range(count)][log.first_ordinal :]


def bytes_of(stored: Batches, pointers: list[int]) -> int:
    """The bytes of the batches that these records lie in."""
    if not pointers:
        return 0
    first, last = pointers[0], pointers[-1]
    return sum(size for base, count, size in stored if base <= last and base + count > first)


def cursors(stored: Batches) -> list[int]:
    """Pointers in front of, in and behind records."""
    edges = [base + step for base, count, _ in stored for step in (-1, 0, count // 2, count - 1, count)]
    return [0, 1, *edges, POINTER_MAX]


every_log = given(st.integers(0, 2**32 - 1))


@settings(max_examples=times(12, 300))
@every_log
def test_count_of_a_range_equals_the_records_read_from_it(seed: int) -> None:
    with grown(seed) as (log, stored):
        rng, kept = random.Random(seed), records_of(log, stored)
        for _ in range(30):
            after, until = sorted(rng.choices(cursors(stored), k=2))
            within = [one for one in kept if after < one <= until]
            found, gone = log.survey(after).count(after, until)
            ends = (within[0], within[-1]) if within else (0, 0)
            assert found == RangeCount(len(within), bytes_of(stored, within), *ends)
            removed = [base + i for base, count, _ in stored for i in range(count)][: log.first_ordinal]
            assert gone == (log.first_ordinal if removed and after < removed[-1] else 0)
            middle = rng.randint(after, until)
            parts = [
                log.survey(one).count(one, other)[0] for one, other in ((after, middle), (middle, until))
            ]
            assert sum(one.records for one in parts) == found.records


@settings(max_examples=times(12, 300))
@every_log
def test_advances_return_the_largest_range_within_the_limits(seed: int) -> None:
    """As many records as asked for; by bytes whole batches, and one at least."""
    with grown(seed) as (log, stored):
        rng, kept = random.Random(seed), records_of(log, stored)
        after = rng.choice(cursors(stored))
        left = [one for one in kept if one > after]
        while True:
            if rng.random() < 0.5:
                records_max, bytes_max = rng.choice((1, 2, 7, 100, ALL)), ALL
                taken = left[:records_max]
            else:
                records_max, bytes_max = ALL, rng.choice((1, 200, 1_000, 20_000))
                taken = []
                for base, count, _ in stored:
                    more = [one for one in left if base <= one < base + count]
                    if taken and bytes_of(stored, taken + more) > bytes_max:
                        break
                    taken += more
            found, _ = log.survey(after).advance(after, records_max, bytes_max)
            assert (found.records, found.bytes) == (len(taken), bytes_of(stored, taken))
            assert found.after >= after
            assert [one for one in kept if found.after < one <= found.until] == taken
            if not taken:
                assert found.until == found.after
                assert not left
                return
            assert found.until == taken[-1]
            after, left = found.until, left[len(taken) :]


@settings(max_examples=times(12, 300))
@every_log
def test_parts_hold_the_same_records_and_none_is_empty_or_too_large(seed: int) -> None:
    with grown(seed) as (log, stored):
        rng, kept = random.Random(seed), records_of(log, stored)
        between = {base - 1 for base, _, _ in stored} | {base + count - 1 for base, count, _ in stored}
        for _ in range(15):
            after, until = sorted(rng.choices(cursors(stored), k=2))
            asked = rng.choice((1, 2, 3, 10, 300, 10_000))
            within = [one for one in kept if after < one <= until]
            parts, _ = log.survey(after).split(after, until, asked)
            assert len(parts) <= asked
            assert bool(parts) == bool(within)
            assert all(one.until == other.after for one, other in pairwise(parts))
            assert all(one.until in between for one in parts[:-1])
            assert [one.records for one in parts] == [
                len([one for one in within if part.after < one <= part.until]) for part in parts
            ]
            assert sum(one.records for one in parts) == len(within)
            assert 0 not in {one.records for one in parts}
            for part in parts:
                assert part.bytes == log.survey(part.after).count(part.after, part.until)[0].bytes
            most = max(2 * len(within) / asked, max((count for _, count, _ in stored), default=0))
            assert all(one.records <= most for one in parts)
            if within and asked == 1:
                assert parts[0].until == min(until, log.newest)


def test_few_parts_have_similar_sizes_wherever_segments_end(open_log: OpenLog, directory: Path) -> None:
    log = open_log(options=LogOptions(size_limit=10_000))
    for _ in range(400):
        put(log, encoded([bytes(10)] * 10))
    assert len(segments(directory)) > 8
    for parts in range(1, 20):
        found, _ = log.survey(0).split(0, POINTER_MAX, parts)
        share = 4_000 / parts
        assert len(found) == parts
        assert all(0.9 * share - 10 <= one.records <= 1.1 * share + 10 for one in found)


# -- damage -------------------------------------------------------------------------------------------------


def pieces(survey: LogSurvey, step: int) -> list[RangeSize]:
    """The whole log, so many records at a time."""
    found, after = [], 0
    while (one := survey.advance(after, step, ALL)[0]).records:
        assert one.until > after
        found.append(one)
        after = one.until
    return found


def assert_consistent(log: Log) -> None:
    """Every question about the whole gives the same number, and every walk ends at its end."""
    survey = log.survey(0)
    whole, gone = survey.count(0, POINTER_MAX)
    assert whole.records + gone == log.end_ordinal
    for step in (1, 7, 64, ALL):
        found = pieces(survey, step)
        assert sum(one.records for one in found) == whole.records
        assert found[-1].until == log.newest
        assert [survey.count(one.after, one.until)[0].records for one in found] == [
            one.records for one in found
        ]
    for parts in (1, 2, 9, 1_000):
        split, _ = survey.split(0, POINTER_MAX, parts)
        assert sum(one.records for one in split) == whole.records
        assert all(one.until == other.after for one, other in pairwise(split))
        assert all(one.records for one in split)


@pytest.mark.parametrize("chance", range(times(12, 400)))
def test_damaged_records_are_counted_once(open_log: OpenLog, directory: Path, chance: int, seed: int) -> None:
    """Bytes anywhere in sealed segments are changed or zeros; the last segment has the end of the log."""
    rng = random.Random(seed + chance)
    with open_log(options=LogOptions(size_limit=2_000), filesystem=FaultyDisk(syncs=False)) as log:
        fill(log, 60, records=3)
        log.roll()
        fill(log, 2)
        log_id = log.log_id
    sealed = segments(directory)[:-1]
    for path in rng.sample(sealed, k=min(len(sealed), rng.randrange(1, 4))):
        path.with_suffix(".idx").unlink(missing_ok=True)
        size = path.stat().st_size
        if rng.random() < 0.5:
            flip(path, rng.randrange(size))
        else:
            start = rng.randrange(size)
            zero(path, start, min(size, start + rng.choice((8, 200, 1_500, size))))
    log = open_log()
    assert log.log_id == log_id
    if chance % 4 == 0:
        log.trim(log.info().last - 40_000)
    assert_consistent(log)


def test_advance_skips_a_damaged_batch_completely(open_log: OpenLog, directory: Path) -> None:
    """An advance ends in front of it or takes all of it, and what is behind it is exact again."""
    with open_log() as log:
        stored = fill(log, 6, records=10)
        log.roll()
        fill(log, 1)
        log_id = log.log_id
    path = segments(directory)[0]
    path.with_suffix(".idx").unlink()
    flip(path, boundaries(path, log_id)[2] + 3)
    survey = open_log().survey(0)
    pointers = [record.pointer for record in stored]
    assert survey.advance(0, 25, ALL)[0][1:3] == (pointers[19], 20)
    assert survey.advance(pointers[19], 3, ALL)[0][1:3] == (pointers[30] - 1, 10)
    assert survey.advance(pointers[19], 15, ALL)[0][1:3] == (pointers[34], 15)
    assert survey.advance(pointers[30], 3, ALL)[0][1:3] == (pointers[33], 3)
    assert survey.count(pointers[19], pointers[39])[0][::2] == (20, pointers[30])
    assert survey.count(pointers[19], pointers[30] - 1)[0] == (
        10,
        survey.count(0, pointers[0])[0].bytes,
        0,
        0,
    )


def test_swapped_segments_are_counted_consistently(open_log: OpenLog, directory: Path) -> None:
    with open_log() as log:
        for _ in range(5):
            fill(log, 10)
            log.roll()
    first, second, third, *_ = segments(directory)
    swap_files(second, third)
    log = open_log()
    assert_consistent(log)
    assert log.survey(0).count(0, POINTER_MAX)[0].records == 50
    assert first.exists()


# -- meanwhile ----------------------------------------------------------------------------------------------


def test_query_during_retention_covers_the_records_that_are_left(open_log: OpenLog) -> None:
    log = open_log()
    stored = []
    for _ in range(10):
        stored += fill(log, 4)
        log.roll()
    stored += fill(log, 4)
    survey = log.survey(0)
    log.trim(stored[20].pointer)
    found, gone = survey.count(0, POINTER_MAX)
    assert (found.records, gone, found.first) == (24, 20, stored[20].pointer)
    assert survey.advance(0, 3, ALL) == (
        RangeSize(stored[19].pointer, stored[22].pointer, 3, survey.count(0, stored[22].pointer)[0].bytes),
        20,
    )


def test_survey_is_unchanged_by_later_appends_and_trims(open_log: OpenLog) -> None:
    log = open_log()
    stored = fill(log, 5)
    survey = log.survey(0)
    fill(log, 5)
    log.roll()
    assert survey.count(0, POINTER_MAX)[0][::2] == (5, stored[0].pointer)
    log.trim(log.newest + 1)
    assert survey.count(0, POINTER_MAX)[0].records == 5
    assert survey.newest == stored[-1].pointer
    assert log.survey(0).count(0, POINTER_MAX) == (RangeCount(0, 0, 0, 0), 10)


def test_few_segments_are_opened_to_advance(open_log: OpenLog) -> None:
    """Of three hundred: those at the ends, and those that halving looks at."""
    disk = FaultyDisk(syncs=False)
    with open_log(filesystem=disk) as log:
        for _ in range(300):
            fill(log, 2)
            log.roll()
    log = open_log(filesystem=disk)
    survey = log.survey(0)
    middle = survey.advance(0, 300, ALL)[0].until
    fresh = [one for one in log._sealed if "named" not in vars(one)]
    assert len(fresh) < 160, "half of them lie behind what was asked for"

    def loaded() -> int:
        """Count the segments that were loaded: a load opens the index."""
        names = [operation.name for operation in disk.operations if operation.kind == "open"]
        return sum(name.endswith(".idx") for name in names)

    before = loaded()
    assert survey.advance(middle, 4, ALL)[0].records == 4
    assert loaded() - before <= 3
    before = loaded()
    assert len(survey.split(0, POINTER_MAX, 20)[0]) == 20
    assert loaded() - before <= 2, "parts that are larger than segments end with one"
