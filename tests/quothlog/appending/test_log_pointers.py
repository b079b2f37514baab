"""Pointers: strictly rising and never given out twice, whatever the clock does and however often it boots."""

from __future__ import annotations

import pytest

from kit.clocks import DAY, HOUR, MINUTE, SECOND, START, ManualClock
from kit.disk.logs import OpenLog, encoded, fill, outcome_of, put
from quothlog import Log, LogOptions
from quothlog.file_format import HORIZON_US
from quothwire.errors import Conflict
from quothwire.pointer import POINTER_MAX


def pointers(log: Log) -> list[int]:
    return [record.pointer for record in log.read()]


def assert_rising(numbers: list[int]) -> None:
    assert numbers == sorted(set(numbers))


def test_pointer_is_its_time(log: Log, clock: ManualClock) -> None:
    for moment in (START + 5 * SECOND, START + 5 * SECOND + 1, START + 9 * SECOND):
        clock.set(moment)
        clock.tick = 0
        assert log.append(b"x").first == moment


def test_clock_may_stand_still(log: Log, clock: ManualClock) -> None:
    """A burst at one value of the clock is unique, bumped by one."""
    clock.tick = 0
    clock.set(START + SECOND)
    for i in range(100):
        put(log, *(encoded([b"x"] * 5) for _ in range(3)))
        assert log.info().gauges["pointer_ahead_us"] == 15 * (i + 1) - 1
    assert pointers(log) == [START + SECOND + i for i in range(1_500)]
    clock.step(SECOND)
    assert log.append(b"x").first == START + 2 * SECOND
    assert log.info().gauges["pointer_ahead_us"] == 0


@pytest.mark.parametrize("back", [1, SECOND, HOUR, 400 * DAY, START + HOUR])
def test_clock_may_step_back(log: Log, clock: ManualClock, back: int) -> None:
    """Putting never fails because of the clock; the steps are counted."""
    clock.tick = 0
    clock.step(SECOND)
    fill(log, 3)
    before = clock.now()
    clock.set(before - back)
    stored = fill(log, 3)
    assert_rising(pointers(log))
    assert [record.pointer - stored[0].pointer for record in stored] == [0, 1, 2]
    info = log.info()
    assert info.counters["clock_steps"] == 1
    assert info.gauges["clock_step_us"] == back
    assert info.gauges["pointer_ahead_us"] == stored[-1].pointer - (before - back)


def test_boots_without_a_record_never_reuse_a_pointer(open_log: OpenLog, clock: ManualClock) -> None:
    """Every boot may have given out pointers that the loss of power took, so each adds its 10 s."""
    clock.tick = 0
    log = open_log()
    newest = log.append(b"x").last
    log.close()
    boots = 6
    for _ in range(boots):
        clock.reboot()
        clock.step(-MINUTE)
        open_log().close()
    log = open_log()
    assert log.append(b"x").first > newest + boots * HORIZON_US
    assert log.info().segments == 2, "empty segments of boots that wrote nothing do not gather"


def test_end_of_the_pointers_is_refused_and_never_wrapped(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    clock.tick = 0
    clock.set(POINTER_MAX - 2)
    assert log.append([b"a", b"b"]).last == POINTER_MAX - 1
    assert outcome_of(log, encoded([b"c", b"d"])) == "pointers_exhausted"
    log.sync()
    assert log.append(b"c").first == POINTER_MAX
    for late in (POINTER_MAX, POINTER_MAX + 1, 2**63, START):
        clock.set(late)
        with pytest.raises(Conflict, match="pointers_exhausted"):
            log.append(b"d")
    log.sync()
    stored = list(log.read())
    assert [record.value for record in stored] == [b"a", b"b", b"c"]
    log.close()
    for _ in range(3):
        clock.reboot()
        log = open_log()
        assert list(log.read()) == stored
        assert list(log.read(POINTER_MAX)) == []
        assert outcome_of(log, encoded([b"d"])) == "pointers_exhausted"
        with pytest.raises(Conflict, match="pointers_exhausted"):
            log.roll()
        assert list(log.read()) == stored
        log.close()


# -- which of them readers see: none that a loss of power could make the log allocate again ------------------


def written(log: Log, records: int) -> list[int]:
    """Append records, one after the other, and return their pointers."""
    return [put(log, encoded([b"x"]))[0].first for _ in range(records)]


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


def test_earlier_sync_makes_only_the_records_visible_that_it_covers(
    open_log: OpenLog, clock: ManualClock
) -> None:
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
    log.roll()
    written(log, 1)
    log.appender.finish_sync(ticket)
    assert log.unsynced_bytes > 0, "it covered nothing of the segment that was begun since"


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
