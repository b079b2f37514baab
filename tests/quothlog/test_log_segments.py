"""Segments: when a new one begins, what is in them, and that no reader notices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.clocks import SECOND, ManualClock
from kit.disk.logs import boundaries, encoded, fill, put, segments, values
from kit.machine.processes import descriptors, needs_proc
from quothlog import Log, LogOptions, file_format
from quothlog.file_format import HORIZON_US, Checkpoint, Footer, LogPosition
from quothlog.index import INDEX_STEP_BYTES, SparseIndex
from quothlog.producers import RESULTS_MAX
from quothwire import batch

OpenLog = Callable[..., Log]


def test_count_limit_is_exact(open_log: OpenLog) -> None:
    log = open_log(options=LogOptions(count_limit=10))
    fill(log, 10)
    assert log.info().segments == 1
    fill(log, 1)
    assert log.info().segments == 2
    fill(log, 1, records=9)
    assert log.info().segments == 2
    fill(log, 1, records=25)
    assert log.info().segments == 3, "a batch above the limit has a segment of its own"
    fill(log, 1)
    assert log.info().segments == 4


def test_size_limit_is_exact(open_log: OpenLog, directory: Path) -> None:
    """No segment is larger, unless one batch alone is."""
    log = open_log(options=LogOptions(size_limit=1_000))
    for size in (10, 200, 500, 900, 10, 3_000, 10, 10, 450):
        log.append(bytes(size))
    for path in segments(directory):
        offsets = boundaries(path, log.log_id)
        assert offsets[-1] <= 1_000 or len(offsets) == 2
    assert [len(value) for value in values(log)] == [10, 200, 500, 900, 10, 3_000, 10, 10, 450]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_batch_is_never_split_at_a_roll(open_log: OpenLog, directory: Path, limit: int) -> None:
    """In bursts, one by one, and larger than a segment."""
    log = open_log(options=LogOptions(count_limit=limit))
    outcomes = put(log, *(encoded([b"%d" % i] * (i % 5 + 1)) for i in range(20)))
    outcomes += [log.append([b"x"] * n) for n in (1, 9, 2)]
    sizes = []
    for path in segments(directory):
        offsets = boundaries(path, log.log_id)
        headers = [batch.parse_header(path.read_bytes(), log.log_id, offset) for offset in offsets[:-1]]
        sizes += [(header.base, header.records) for header in headers]
    assert sizes == [(outcome.first, outcome.count) for outcome in outcomes]


def test_segment_is_named_by_the_smallest_pointer_it_can_hold(open_log: OpenLog, directory: Path) -> None:
    """The order of names is the order of pointers."""
    log = open_log(options=LogOptions(count_limit=3))
    fill(log, 10)
    named = [int(path.stem) for path in segments(directory)]
    assert all(len(path.stem) == 17 for path in segments(directory))
    held = [record.pointer for record in log.read()][::3]
    for floor, first, following in zip(named, held, [*named[1:], 2**56], strict=True):
        assert floor <= first < following


def test_rolling_an_empty_segment_does_nothing(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    before = segments(directory)
    assert [log.roll() for _ in range(3)] == [False] * 3
    fill(log, 1)
    assert log.roll() is True
    assert [log.roll() for _ in range(3)] == [False] * 3
    assert len(segments(directory)) == len(before) + 1
    log.close()
    log = open_log()
    assert log.roll() is False
    fill(log, 1)
    assert len(values(log)) == 2


def test_roll_at_an_unmoved_clock_makes_segments_of_their_own(open_log: OpenLog, clock: ManualClock) -> None:
    """Two segments never have one name."""
    clock.tick = 0
    log = open_log(options=LogOptions(count_limit=1))
    told = fill(log, 20)
    assert log.info().segments == 20
    assert list(log.read()) == told
    log.close()
    assert list(open_log().read()) == told


def test_record_that_comes_during_a_roll_reaches_every_reader(log: Log) -> None:
    """A reader from before the roll goes on behind it without a gap and in order."""
    before = fill(log, 3)
    place = log.lookup(before[0].pointer)
    late = fill(log, 1)
    log.roll()
    after = fill(log, 2)
    assert place is not None
    found = place.read()
    assert found is not None
    assert found.next == before[-1].pointer
    assert list(log.read(found.next)) == late + after
    for i, record in enumerate(before + late + after):
        assert list(log.read(record.pointer)) == (before + late + after)[i + 1 :]


def test_sync_begun_before_a_roll_may_end_after_it(log: Log) -> None:
    fill(log, 2)
    ticket = log.appender.begin_sync()
    log.roll()
    told = fill(log, 1)
    ticket.run()
    log.appender.finish_sync(ticket)
    assert log.synced_pointer < told[0].pointer
    assert log.unsynced_records == 1
    log.sync()
    assert (log.unsynced_records, log.unsynced_bytes) == (0, 0)


@needs_proc
def test_log_that_rolls_leaves_no_file_open(log: Log) -> None:
    """Not of the segment that it began with either: a removed file takes its room until it is closed."""
    log.append(b"first")
    before = descriptors(os.getpid())
    for _ in range(3):
        log.roll()
        log.trim(log.append(b"next").last)
        assert descriptors(os.getpid()) <= before


@pytest.mark.alone
def test_append_costs_the_same_however_full_the_segment_is(open_log: OpenLog, clock: ManualClock) -> None:
    """The time of an append among the first 1,000 against one behind 50,000."""
    clock.tick = 10
    log = open_log(options=LogOptions(size_limit=2**30))
    raw = encoded([b"x" * 100])

    def fastest() -> float:
        """Of ten times a hundred appends: whatever else the machine does, it only ever takes longer."""
        times = []
        for _ in range(10):
            start = time.perf_counter()
            for _ in range(100):
                log.append_batches([raw])
            times.append(time.perf_counter() - start)
        return min(times)

    empty = fastest()
    for _ in range(50):
        log.append_batches([raw] * 1_000)
    full = fastest()
    assert log.info().end_ordinal == 52_000
    assert full < 2 * empty, f"{full:.4f} s for 100 appends behind 51,000 batches, {empty:.4f} s before"


@pytest.mark.parametrize("offset", [2**31, 2**32, 2**40 - 1, 2**40, 2**40 + 8, 2**62])
def test_offsets_above_every_bound_of_the_past_are_kept(offset: int) -> None:
    """64 bits wherever an offset is kept."""
    start, far = LogPosition(96, 5, 0), LogPosition(offset, 2**56 - 2, 2**50)
    index = SparseIndex([start])
    index.note(far)
    assert index.positions() == [start, far]
    assert index.before(2**56 - 2) == far
    assert index.before(2**56 - 3) == start
    assert index.leap(offset, 2**50) == far
    assert index.leap(offset - 1, 2**50) == index.leap(offset, 2**50 - 1) == start
    footer = Footer(9, far, 8)
    assert file_format.decode_footer(file_format.encode_footer(footer)) == footer
    point = Checkpoint(9, 5, far, 8, offset - 96, 7, [start, far], b"table")
    assert file_format.decode_checkpoint(file_format.encode_checkpoint(point)) == point


def test_index_stays_small(open_log: OpenLog, directory: Path) -> None:
    """24 bytes a position, one position in 64 KiB, and 32 a result of a producer."""
    log = open_log()
    for _ in range(64):
        log.append([bytes(1_000)] * 64)
    log.roll()
    sealed = segments(directory)[0]
    entries = sealed.stat().st_size // INDEX_STEP_BYTES + 2
    assert sealed.with_suffix(".idx").stat().st_size < 24 * entries + 32 * RESULTS_MAX + 200


def test_beyond_ten_seconds_a_roll_shows_everything(open_log: OpenLog, clock: ManualClock) -> None:
    """Sealing syncs, so what was held back by the horizon is held back no longer."""
    log = open_log()
    clock.step(HORIZON_US + SECOND)
    put(log, encoded([b"held back"]))
    assert values(log) == []
    log.roll()
    assert values(log) == [b"held back"]
