"""Retention removes whole segments by age, by size and on demand, the active one too; readers go on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kit.clocks import DAY, SECOND, ManualClock
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, encoded, fill, put, segments, values
from kit.disk.memory_disk import MemoryDisk
from quothlog import Log, LogOptions
from quothwire.pointer import POINTER_MAX
from quothwire.record import Record

DISTANT = LogOptions(max_age=3_600, count_limit=2)


def missing(log: Log, after: int, ordinal: int = -1) -> int:
    """Count the records that a reader with this cursor has missed."""
    found = log.fetch(after)
    assert found is not None
    return log.loss(after, ordinal, found).records


def synced_fill(log: Log, batches: int, records: int = 1) -> list[Record]:
    stored = fill(log, batches, records)
    log.sync()
    return stored


# -- on demand ----------------------------------------------------------------------------------------------


def test_trim_removes_only_segments_wholly_before_the_pointer(open_log: OpenLog, tmp_path: Path) -> None:
    for keep in range(11):
        log = open_log(tmp_path / str(keep), options=LogOptions(count_limit=2))
        assert log.trim(POINTER_MAX) == (0, 0)
        stored = fill(log, 10)
        assert log.trim(0) == log.trim(stored[0].pointer) == log.trim(stored[1].pointer) == (0, 0)
        held, size = len(segments(log.directory)), log.info().bytes
        records, freed = log.trim(stored[10 - keep].pointer if keep else POINTER_MAX)
        left = list(log.read())
        assert left == stored[records:]
        assert records == (10 - keep) // 2 * 2
        assert freed == size - log.info().bytes or not keep, "an empty segment has come for the active one"
        assert len(segments(log.directory)) == max(1, held - records // 2 + (keep == 0))
        assert log.first_ordinal == log.info().first_ordinal == records
        assert log.info().end_ordinal == 10
        assert log.info().first == (left[0].pointer if left else 0)


def test_trimmed_segments_stay_removed_after_a_loss_of_power(directory: Path, clock: ManualClock) -> None:
    """The directory is synced before the removal is reported."""
    for seed in range(12):
        disk = MemoryDisk()
        log = Log.open(directory, filesystem=disk, clock=clock, options=LogOptions(count_limit=1))
        stored = fill(log, 6)
        log.sync()
        assert log.trim(stored[4].pointer)[0] == 4
        assert sum(name.endswith(".idx") for name in disk.list(directory)) == 1
        log.discard()
        disk.lose_power(random.Random(seed))
        with Log.open(directory, filesystem=disk, clock=clock) as again:
            assert list(again.read()) == stored[4:]
            assert again.first_ordinal == 4


def test_a_trim_that_is_repeated_after_a_failure_is_durable(directory: Path, clock: ManualClock) -> None:
    """The first one has removed the segments, so the second one finds none to remove."""
    for kind in ("remove", "sync_directory"):
        memory = MemoryDisk()
        disk = FaultyDisk(memory)
        log = Log.open(directory, filesystem=disk, clock=clock, options=LogOptions(count_limit=1))
        stored = fill(log, 6)
        log.sync()
        disk.fail(kind, 8 if kind == "remove" else 1)
        with pytest.raises(OSError, match="Input/output error"):
            log.trim(stored[4].pointer)
        log.trim(stored[4].pointer)
        log.discard()
        memory.lose_power(random.Random(1))
        with Log.open(directory, filesystem=memory, clock=clock) as again:
            assert list(again.read()) == stored[4:]


# -- by age -------------------------------------------------------------------------------------------------


def test_no_record_outlives_its_age_by_more_than_a_quarter(open_log: OpenLog, clock: ManualClock) -> None:
    """A record a second, a sweep each time one is due; nothing young goes, nothing old stays."""
    log = open_log(options=LogOptions(max_age=40))
    clock.tick = 0
    for _ in range(150):
        synced_fill(log, 1)
        clock.step(SECOND)
        due = log.retention_due()
        if due is not None and due <= clock.now():
            log.retain()
        kept = [record.pointer for record in log.read()]
        assert min(kept) >= clock.now() - 51 * SECOND
        assert len(kept) >= min(40, log.end_ordinal)


def test_a_record_from_the_future_keeps_only_its_own_segment(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(options=DISTANT)
    stored = synced_fill(log, 4)
    clock.step(-10 * DAY)
    assert log.retain()[0] == 0
    assert list(log.read()) == stored


def test_nothing_is_removed_without_a_limit(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(options=LogOptions(count_limit=1))
    stored = synced_fill(log, 5)
    clock.step(10_000 * DAY)
    assert log.retention_due() is None
    assert log.retain() == (0, 0)
    assert list(log.read()) == stored


def test_finished_records_go_a_segment_at_a_time_whatever_their_age(open_log: OpenLog) -> None:
    log = open_log(options=LogOptions(count_limit=2))
    stored = synced_fill(log, 5)
    assert log.retain(finished=stored[2].pointer)[0] == 2
    assert list(log.read()) == stored[2:]
    assert log.retain(finished=stored[3].pointer)[0] == 2
    assert list(log.read()) == stored[4:], "the active segment stays"


def test_age_limit_seals_the_active_segment(open_log: OpenLog, clock: ManualClock) -> None:
    """Roll by age."""
    log = open_log(options=LogOptions(age_limit=60))
    stored = synced_fill(log, 1)
    assert log.retention_due() == stored[0].pointer + 60 * SECOND
    clock.set(stored[0].pointer + 59 * SECOND)
    log.retain()
    assert log.info().segments == 1
    clock.set(stored[0].pointer + 60 * SECOND)
    log.retain()
    assert log.info().segments == 2
    assert log.retention_due() is None
    assert list(log.read()) == stored


def test_retention_returns_when_it_is_next_due(open_log: OpenLog, clock: ManualClock) -> None:
    """One microsecond earlier it does nothing, at that moment it does."""
    log = open_log(options=LogOptions(max_age=100, count_limit=3))
    clock.tick = 0
    for _ in range(10):
        synced_fill(log, 1)
        clock.step(SECOND)
    sealed = 0
    while (due := log.retention_due()) is not None:
        before = log.info()
        clock.set(due - 1)
        assert log.retain() == (0, 0)
        assert log.info().segments == before.segments
        clock.set(due)
        log.retain()
        after = log.info()
        assert (after.first_ordinal, after.segments) != (before.first_ordinal, before.segments)
        sealed += 1
        assert sealed < 20
    assert values(log) == []


# -- by size ------------------------------------------------------------------------------------------------


def test_log_stays_below_its_bytes(open_log: OpenLog, tmp_path: Path) -> None:
    """Whole segments go, so up to a quarter more than necessary, and the newest batch always stays."""
    for max_bytes in (1, 2_000, 10_000):
        log = open_log(tmp_path / str(max_bytes), options=LogOptions(max_bytes=max_bytes))
        stored = []
        for i in range(100):
            stored.append(b"%0*d" % (100 + i % 7, i))
            put(log, encoded([stored[-1]]))
            log.retain()
            left = values(log)
            assert left
            assert left == stored[-len(left) :]
            size = sum(path.stat().st_size for path in segments(log.directory))
            assert size == log.info().bytes <= max(max_bytes, 500)
            assert size > max_bytes * 0.6 or len(left) == len(stored)


def test_newest_records_outlive_a_limit_that_they_exceed_alone(open_log: OpenLog) -> None:
    """Records acknowledged a moment ago are not removed for their size before a reader could read them."""
    log = open_log(options=LogOptions(max_bytes=1_000))
    for size in (10, 5_000, 20_000):
        log.append(bytes(size))
        log.retain()
        log.retain()
        assert values(log)[-1] == bytes(size)
    log.append(b"next")
    assert log.retain()[0] == 1
    assert values(log) == [b"next"]


def test_large_producer_table_does_not_make_every_batch_a_segment(open_log: OpenLog) -> None:
    """A thousand producers make a header block that is larger than a small segment."""
    log = open_log(options=LogOptions(max_bytes=40_000))
    put(log, *(encoded([b"x"], producer, 1) for producer in range(1, 1_001)))
    log.roll()
    rolls = log.info().counters["rolls"]
    for _ in range(100):
        put(log, encoded([b"x" * 20]))
        log.retain()
    assert log.info().counters["rolls"] <= rolls + 1


# -- readers ------------------------------------------------------------------------------------------------


def test_cursor_below_the_kept_records_continues_there_and_reports_the_removed_ones(
    open_log: OpenLog,
) -> None:
    """Exactly, if the reader knows its ordinal, else at most so many; never silently."""
    log = open_log(options=LogOptions(count_limit=2))
    stored = fill(log, 10)
    log.trim(stored[6].pointer)
    assert list(log.read(0)) == stored[6:]
    for i in range(10):
        assert list(log.read(stored[i].pointer)) == stored[max(6, i + 1) :]
    assert missing(log, 0) == 6
    assert missing(log, 0, ordinal=0) == 6
    assert missing(log, stored[2].pointer, ordinal=3) == 3
    assert 3 <= missing(log, stored[2].pointer) <= 6
    for i in range(5, 9):
        assert missing(log, stored[i].pointer) == 0
        assert missing(log, stored[i].pointer, ordinal=i + 1) == 0


def test_number_of_removed_records_is_known_after_all_were_removed(open_log: OpenLog) -> None:
    """Also over a restart."""
    log = open_log()
    stored = fill(log, 3)
    log.trim(POINTER_MAX)
    assert log.fetch(0) is None
    log.close()
    log = open_log()
    fill(log, 2)
    assert missing(log, 0) == 3
    assert missing(log, stored[0].pointer, ordinal=1) == 2
    assert missing(log, stored[2].pointer) == 0


def test_lookup_in_a_removed_segment_returns_the_next_cursor(open_log: OpenLog) -> None:
    """Retention ran between the lookup and its reading, which another thread does later."""
    log = open_log(options=LogOptions(count_limit=2))
    stored = fill(log, 7)
    places = [log.lookup(record.pointer - 1) for record in stored[:4]]
    log.trim(stored[6].pointer)
    for place in places:
        assert place is not None
        assert place.read() is None
        assert list(log.read(place.beyond)) == stored[6:]


def test_missing_segment_file_is_reported(open_log: OpenLog, directory: Path) -> None:
    """Damaged is never absent: what retention did not remove has to be there."""
    log = open_log(options=LogOptions(count_limit=2))
    fill(log, 7)
    segments(directory)[1].unlink()
    with pytest.raises(OSError, match="No such file"):
        list(log.read())
