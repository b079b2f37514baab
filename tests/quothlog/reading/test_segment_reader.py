"""Extracts: a reader that goes on gets what a search from the beginning would give."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kit.clocks import ManualClock
from kit.deadlines import eventually
from kit.disk.damage import flip
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, segments
from kit.disk.memory_disk import MemoryDisk
from kit.disk.topics import drop_from_cache
from kit.scale import times
from quothlog import Log, LogOptions
from quothlog.reading.segment_reader import (
    EXTRACT_ENDS_MAX,
    Extract,
    SegmentView,
    _extract_any,
    extract,
    extract_at_hand,
    up_to,
)
from quothwire import batch


def grown(log: Log, rng: random.Random, batches: int) -> list[int]:
    """Append batches of all sizes; returns the pointers in front of and in the middle of them."""
    cursors = [0]
    for _ in range(batches):
        records, size = rng.choice(((1, 10), (3, 300), (40, 20), (7, 20_000)))
        appended = log.append([bytes([rng.randrange(256)]) * rng.randrange(size) for _ in range(records)])
        cursors += [appended.first, appended.last]
    return cursors


def view_of(log: Log, after: int) -> SegmentView:
    """Return the view for a read from a cursor."""
    found = log.lookup(after)
    assert found is not None
    return found.view or found.segment.view()


def searched(log: Log, after: int, records_max: int, bytes_max: int) -> Extract | None:
    """The extract without extract_ends and guesses, as whatever is damaged is read."""
    return _extract_any(view_of(log, after), log.log_id, after, records_max, bytes_max)


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
@pytest.mark.parametrize("size_limit", [2**30, 2**18], ids=["active", "sealed"])
def test_sequential_reads_return_the_same_batches_as_searches(
    directory: Path, clock: ManualClock, rng: random.Random, damaged: bool, size_limit: int
) -> None:
    """The same batches, whatever their sizes, limits and damage."""
    options = LogOptions(size_limit=size_limit)
    with Log.open(directory, clock=clock, options=options) as log:
        cursors = [one for one in grown(log, rng, 120) if one < log.newest]
        if damaged:
            for path in rng.choices(segments(directory), k=6):
                flip(path, rng.randrange(200, path.stat().st_size))
        after = 0
        for _ in range(times(400, 10_000)):
            records_max = rng.choice((1, 5, 100, 2**63))
            bytes_max = rng.choice((1, 1_000, 2**17, 2**22))
            if after >= log.newest:
                after = rng.choice(cursors)
            expected = searched(log, after, records_max, bytes_max)
            view = view_of(log, after)
            assert extract_at_hand(view, log.log_id, after, records_max, bytes_max) in (None, expected)
            found = extract(view, log.log_id, after, records_max, bytes_max)
            assert (found is None) == (expected is None)
            if found is None or expected is None:  # nothing is left behind it in this segment
                after = rng.choice(cursors)
                continue
            assert found.data == expected.data
            assert (found.ordinal, found.expected) == (expected.ordinal, expected.expected)
            assert found.next == expected.next
            after = rng.choice((found.next, found.next, found.next, rng.choice(cursors)))


def test_read_at_hand_returns_nothing_from_the_disk(directory: Path, clock: ManualClock) -> None:
    with Log.open(directory, clock=clock) as log:
        cursors = [log.append([b"x" * 100] * 100).last for _ in range(100)]
        log.roll()

        def at_hand(row: int) -> Extract | None:
            place = log.lookup(cursors[row], records_max=100)
            assert place is not None
            assert place.sealed
            return place.read_at_hand()

        assert at_hand(0) is None
        found = log.fetch(cursors[0], records_max=100)
        assert found is not None
        assert at_hand(0) is None
        warm = at_hand(1)
        if warm is None:
            pytest.skip("this file system cannot tell what is in memory")
        assert warm.next == cursors[2]

        def forgotten() -> bool:
            drop_from_cache(directory)
            return at_hand(2) is None

        # A read that may not wait starts one that may, and a fast disk has it done at once.
        eventually(forgotten, "the disk is not faster than the read")
        assert log.fetch(cursors[2], records_max=100) is not None
        again = at_hand(2)
        assert again is not None
        assert again.next == cursors[3]


def test_extract_keeps_at_most_twice_its_size_in_memory(open_log: OpenLog) -> None:
    """Replies wait for slow consumers, and are counted by what they hold."""
    with open_log() as log:
        cursors = [0]
        for size in (100, 900_000, 100, 400_000, 100, 100):
            cursors.append(log.append([bytes(size)]).last)
        for bytes_max in (1_000, 500_000, 2**20, 2**22):
            for after in cursors[:-1]:
                for _ in ("searched", "read on"):
                    found = log.fetch(after, bytes_max=bytes_max)
                    assert found is not None
                    for data in (found.data, up_to(found, log.log_id, after + 1)[0]):
                        kept = memoryview(data.obj) if isinstance(data, memoryview) else data
                        assert len(kept) <= 2 * len(data)


def test_read_at_hand_returns_small_extracts_only(open_log: OpenLog) -> None:
    """A reader thread reads batches that are larger than estimated."""
    disk = FaultyDisk(MemoryDisk())
    with open_log(filesystem=disk) as log:
        for _ in range(300):
            log.append([b"small"])
        cursor = log.append([b"small"]).last
        last = log.append([b"small"]).last
        log.append([b"large" * 50_000])
        log.roll()
        assert log.fetch(0, records_max=301) is not None
        before = disk.count("read")
        for records, expected in ((1, last), (2, None)):
            place = log.lookup(cursor, records_max=records)
            assert place is not None
            found = place.read_at_hand()
            assert (found.next if found else None) == expected
        assert disk.count("read") == before


def test_a_reader_that_comes_from_the_segment_before_reads_the_next_one_at_hand(open_log: OpenLog) -> None:
    """Once a reader has opened it: the reader threads open segments."""
    with open_log() as log:
        lasts = []
        for _ in range(3):
            lasts.append(log.append([b"a", b"b"]).last)
            log.roll()
        for after in (lasts[0], 0):
            place = log.lookup(after)
            assert place is not None
            assert place.read_at_hand() is None
            expected = place.read()
            assert expected is not None
            assert expected.next == lasts[1]
            assert place.read_at_hand() == expected
            place.segment.rest()
            log.trim(lasts[1])


def test_extract_ends_of_a_thousand_readers_are_bounded(open_log: OpenLog) -> None:
    log = open_log()
    for appended in [log.append([b"x"]) for _ in range(3 * EXTRACT_ENDS_MAX)]:
        log.fetch(appended.first - 1, 1)
        assert len(view_of(log, 0).extract_ends) <= EXTRACT_ENDS_MAX
    assert appended.last in view_of(log, 0).extract_ends


def test_records_larger_than_earlier_ones_are_returned_as_requested(open_log: OpenLog) -> None:
    """Their size is estimated from those before, and they are read again if that was too little."""
    log = open_log()
    after = log.append([b"x"] * 20_000).last
    for _ in range(200):
        log.append(b"y" * 2_000)
    for _ in range(2):
        found = log.fetch(after, records_max=100)
        assert found is not None
        assert len(batch.split(found.data, log.log_id)) == 100
        after = found.next
