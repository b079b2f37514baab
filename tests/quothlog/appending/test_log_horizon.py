"""Visible records: never a pointer that a loss of power could make the log allocate again."""

from __future__ import annotations

from collections.abc import Callable

from kit.clocks import MINUTE, SECOND, START, ManualClock
from kit.disk.logs import encoded, put, values
from quothlog import Log, LogOptions
from quothlog.file_format import HORIZON_US

OpenLog = Callable[..., Log]

SYNCED = LogOptions(synced_reads=True)


def written(log: Log, records: int) -> list[int]:
    """Append records, one after the other, and tell their pointers."""
    return [put(log, encoded([b"x"]))[0].first for _ in range(records)]


def pointers(log: Log) -> list[int]:
    return [record.pointer for record in log.read()]


def test_records_within_ten_seconds_of_the_synced_ones_are_seen_at_once(
    open_log: OpenLog, clock: ManualClock
) -> None:
    clock.tick = 0
    log = open_log()
    for moment in (START, START + SECOND, START + HORIZON_US - 1):
        clock.set(moment)
        assert written(log, 1) == [log.newest] == [moment]
    clock.set(START + HORIZON_US)
    assert written(log, 1) > [log.newest]


def test_records_beyond_ten_seconds_wait_for_the_sync(open_log: OpenLog, clock: ManualClock) -> None:
    clock.tick = 0
    log = open_log()
    told = written(log, 2)
    clock.step(HORIZON_US + 1)
    held = written(log, 1)
    assert (log.newest, log.end_ordinal) == (told[-1], 2)
    assert pointers(log) == told
    assert log.lookup(told[-1]) is None
    info = log.info()
    assert (info.last, info.end_ordinal) == (told[-1], 2)
    log.sync()
    assert pointers(log) == told + held
    assert log.newest == held[-1]


def test_burst_that_borrows_more_than_ten_seconds_waits(open_log: OpenLog, clock: ManualClock) -> None:
    """More than one record a microsecond, for long."""
    clock.tick = 0
    log = open_log(options=LogOptions(size_limit=2**30))
    raw = encoded([b""] * 100_000)
    while log.append_batches([raw]) and log.unsynced_records == log.end_ordinal:
        assert log.newest - START < HORIZON_US
    assert log.newest == START + HORIZON_US - 1
    assert log.unsynced_records == HORIZON_US + 100_000
    log.sync()
    assert log.newest == START + HORIZON_US + 100_000 - 1


def test_sync_that_was_begun_earlier_shows_what_it_covers(open_log: OpenLog, clock: ManualClock) -> None:
    clock.tick = 0
    log = open_log()
    written(log, 1)
    clock.step(MINUTE)
    covered = written(log, 1)
    ticket = log.appender.begin_sync()
    clock.step(MINUTE)
    later = written(log, 1)
    ticket.run()
    log.appender.finish_sync(ticket)
    assert log.newest == covered[0]
    log.sync()
    assert log.newest == later[0]


def test_synced_reads_show_synced_records_only(open_log: OpenLog) -> None:
    """Readers of a `synced` topic see only what survives a loss of power."""
    log = open_log(options=SYNCED)
    first = written(log, 3)
    assert (values(log), log.newest, log.end_ordinal) == ([], 0, 0)
    assert log.unsynced_records == 3
    log.sync()
    assert pointers(log) == first
    ticket = log.appender.begin_sync()
    later = written(log, 1)
    ticket.run()
    log.appender.finish_sync(ticket)
    assert pointers(log) == first
    log.sync()
    assert pointers(log) == first + later


def test_synced_reads_see_all_of_what_a_roll_seals(open_log: OpenLog) -> None:
    log = open_log(options=LogOptions(synced_reads=True, count_limit=4))
    put(log, *(encoded([b"%d" % i]) for i in range(10)))
    assert values(log) == [b"%d" % i for i in range(8)]


def test_embedded_append_waits_for_the_sync_itself(open_log: OpenLog, clock: ManualClock) -> None:
    """A program that appends record by record finds every record at once, however rarely they come."""
    log = open_log()
    for i in range(4):
        log.append(b"%d" % i)
        assert len(pointers(log)) == i + 1
        clock.step(MINUTE)
    log.append(b"within ten seconds of the last one")
    assert log.unsynced_records == 0
    clock.step(SECOND)
    log.append(b"too")
    assert log.unsynced_records == 1
    assert len(pointers(log)) == 6
