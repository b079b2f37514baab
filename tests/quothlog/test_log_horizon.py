"""What readers may see: never a pointer that a loss of power could make the log give out again."""

from __future__ import annotations

from collections.abc import Callable

from kit.clocks import MINUTE, SECOND, START, ManualClock
from kit.logs import encoded, fill, put, values

from quothlog import Log, LogOptions
from quothlog.pointers import HORIZON_US

OpenLog = Callable[..., Log]

SYNCED = LogOptions(synced_reads=True)


def test_records_within_ten_seconds_of_the_synced_ones_are_seen_at_once(
    open_log: OpenLog, clock: ManualClock
) -> None:
    """C25: what is written is visible without a sync, up to the very microsecond."""
    clock.tick = 0
    log = open_log()
    for moment in (START, START + SECOND, START + HORIZON_US - 1):
        clock.set(moment)
        assert log.append(b"x").last == log.newest == moment
    clock.set(START + HORIZON_US)
    assert log.append(b"x").last > log.newest


def test_records_beyond_ten_seconds_wait_for_the_sync(open_log: OpenLog, clock: ManualClock) -> None:
    clock.tick = 0
    log = open_log()
    told = fill(log, 2)
    clock.step(HORIZON_US + 1)
    held = fill(log, 1)
    assert (log.newest, log.end_ordinal) == (told[-1].pointer, 2)
    assert list(log.read()) == told
    assert log.lookup(told[-1].pointer) is None
    info = log.info()
    assert (info.last, info.end_ordinal) == (told[-1].pointer, 2)
    log.sync()
    assert list(log.read()) == told + held
    assert log.newest == held[-1].pointer


def test_burst_that_borrows_more_than_ten_seconds_waits(open_log: OpenLog, clock: ManualClock) -> None:
    """C4: more than one record a microsecond, for long."""
    clock.tick = 0
    log = open_log(options=LogOptions(size_limit=2**30))
    raw = encoded([b""] * 100_000)
    while log.append_batches([raw]) and log.unsynced_records == log.end_ordinal:
        assert log.newest - START < HORIZON_US
    assert log.newest == START + HORIZON_US - 1
    assert log.unsynced_records == HORIZON_US + 100_000
    log.sync()
    assert log.newest == START + HORIZON_US + 100_000 - 1


def test_what_was_seen_stays_seen_while_later_records_wait(open_log: OpenLog, clock: ManualClock) -> None:
    clock.tick = 0
    log = open_log()
    log.sync()
    seen = fill(log, 3)
    clock.step(MINUTE)
    fill(log, 3)
    assert list(log.read()) == seen
    assert log.synced_pointer < seen[0].pointer


def test_sync_that_was_begun_earlier_shows_what_it_covers(open_log: OpenLog, clock: ManualClock) -> None:
    clock.tick = 0
    log = open_log()
    fill(log, 1)
    clock.step(MINUTE)
    covered = fill(log, 1)
    ticket = log.begin_sync()
    clock.step(MINUTE)
    later = fill(log, 1)
    ticket.run()
    log.finish_sync(ticket)
    assert log.newest == covered[0].pointer
    log.sync()
    assert log.newest == later[0].pointer


def test_first_record_after_a_long_rest_waits_for_the_sync(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    told = fill(log, 1)
    log.close()
    clock.step(MINUTE)
    log = open_log()
    held = fill(log, 1)
    assert list(log.read()) == told
    log.sync()
    assert list(log.read()) == told + held


def test_reopening_after_a_crash_shows_everything_that_is_there(open_log: OpenLog, clock: ManualClock) -> None:
    """Opening syncs what it found, so nothing of it has to wait."""
    log = open_log()
    told = fill(log, 1)
    clock.step(MINUTE)
    told += fill(log, 1)
    log._lock.release()
    again = open_log()
    assert list(again.read()) == told
    assert again.unsynced_bytes == 0


def test_synced_reads_show_synced_records_only(open_log: OpenLog) -> None:
    """Decision 6: readers of a `synced` topic see only what survives a loss of power."""
    log = open_log(options=SYNCED)
    first = fill(log, 1, records=3)
    assert (values(log), log.newest, log.end_ordinal) == ([], 0, 0)
    assert log.unsynced_records == 3
    log.sync()
    assert list(log.read()) == first
    ticket = log.begin_sync()
    log.append(b"after the ticket")
    ticket.run()
    log.finish_sync(ticket)
    assert list(log.read()) == first
    log.sync()
    assert values(log)[3:] == [b"after the ticket"]


def test_synced_reads_see_all_of_what_a_roll_seals(open_log: OpenLog) -> None:
    log = open_log(options=LogOptions(synced_reads=True, count_limit=4))
    put(log, *(encoded([b"%d" % i]) for i in range(10)))
    assert values(log) == [b"%d" % i for i in range(8)]


def test_unsynced_amounts_are_told(open_log: OpenLog) -> None:
    log = open_log()
    raws = [encoded([b"x"] * n) for n in (1, 5)]
    put(log, *raws)
    assert (log.unsynced_records, log.unsynced_bytes) == (6, sum(map(len, raws)))
    log.sync()
    assert (log.unsynced_records, log.unsynced_bytes) == (0, 0)
