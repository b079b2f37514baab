"""A disk that is full, fails to sync, or fails while the log is opened."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.clocks import SECOND, ManualClock
from kit.disk.damage import flip
from kit.disk.doubles import CHANGES, Died, FaultyDisk, Kind
from kit.disk.logs import OpenLog, copy, encoded, fill, outcome_of, put, segments, values
from quothlog import Log, LogOptions
from quothwire.errors import BrokerFailure, QuothError, Unavailable
from quothwire.text.quantity import parse_size

VALUES = [[b"%d.%d" % (n, i) for i in range(n % 3 + 1)] for n in range(1, 5)]


def dense(sequence: int) -> bytes:
    return encoded(VALUES[sequence - 1], 5, sequence)


# -- a full disk --------------------------------------------------------------------------------------------


def test_full_disk_is_reported_with_free_and_needed_bytes_and_writing_resumes(open_log: OpenLog) -> None:
    """`disk_low` from `disk_free_min` on; reads go on."""
    disk = FaultyDisk()
    disk.free = 10_000
    log = open_log(filesystem=disk, options=LogOptions(disk_free_min=9_000))
    stored = fill(log, 2, size=100)
    for size, free in ((2_000, 10_000), (10, 8_000), (10, 0)):
        disk.free = free
        with pytest.raises(Unavailable) as raised:
            log.append(bytes(size))
        assert raised.value.code == "disk_low"
        assert raised.value.retryable
        have, needed = map(parse_size, re.findall(r"(\S+ \w+) are", raised.value.text))
        assert have == free
        assert 9_000 + size < needed < 9_000 + size + 200
        assert list(log.read()) == stored
    disk.free = 10_000
    stored += fill(log, 2, size=100)
    assert list(log.read()) == stored


def test_batches_of_one_burst_are_stored_or_refused_together(open_log: OpenLog) -> None:
    """None of what waited for a failed write is stored; what comes after it may be."""
    disk = FaultyDisk()
    log = open_log(filesystem=disk)
    disk.fail("write", problem=errno.ENOSPC, written=100)
    outcomes = log.append_batches([dense(1), b"no batch", dense(2), encoded([b"x"]), dense(4)])
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, QuothError)]
    assert codes == ["disk_low", "bad_batch", "disk_low", "disk_low", "out_of_sequence"]
    assert values(log) == []
    put(log, dense(1), dense(2))
    assert values(log) == VALUES[0] + VALUES[1]


@pytest.mark.parametrize("kind", ["create", "write"])
def test_retention_removes_segments_on_a_full_disk(open_log: OpenLog, clock: ManualClock, kind: Kind) -> None:
    """The hint says: free some space or trim. So what is sealed goes before anything new is made."""
    disk = FaultyDisk()
    log = open_log(filesystem=disk, options=LogOptions(max_age=100, count_limit=2))
    stored = fill(log, 7)
    log.sync()
    clock.step(1_000 * 1_000_000)
    acts: list[Callable[[], object]] = [log.retain, lambda: log.trim(stored[-1].pointer + 1)]
    for act in acts:
        disk.fail(kind, problem=errno.ENOSPC)
        with pytest.raises(Unavailable, match="disk_low"):
            act()
        assert list(log.read()) == stored[6:]
        disk.heal()
    log.retain()
    assert values(log) == []


def test_no_batch_of_a_burst_is_written_after_a_failed_write(open_log: OpenLog) -> None:
    """Though the next batch would have had room where the failed one does not lie now."""
    disk = FaultyDisk()
    log = open_log(filesystem=disk, options=LogOptions(count_limit=3))
    log.append(b"before")
    disk.fail("write", written=50)
    disk.fail("truncate")
    outcomes = log.append_batches([encoded([b"failed"] * 2), encoded([b"behind"] * 2)])
    assert [outcome.code for outcome in outcomes if isinstance(outcome, QuothError)] == ["storage_failed"] * 2
    log.close()
    assert values(open_log()) == [b"before"]


# -- a failed sync ------------------------------------------------------------------------------------------


def test_failed_sync_is_never_followed_by_one_that_seems_to_succeed(open_log: OpenLog) -> None:
    """After a failed fsync the next one would return at once and mean nothing."""
    disk = FaultyDisk()
    log = open_log(filesystem=disk)
    fill(log, 2)
    disk.fail("sync")
    with pytest.raises(BrokerFailure, match="storage_failed"):
        log.sync()
    synced = log.synced_pointer
    for act in (log.sync, log.roll, log.appender.begin_sync, lambda: log.append(b"x")):
        with pytest.raises(BrokerFailure, match="storage_failed"):
            act()
    assert log.synced_pointer == synced
    assert log.unsynced_records == 2
    assert len(values(log)) == 2, "reads go on"


def test_sync_that_failed_in_another_thread_is_never_followed_by_one_that_succeeds(
    open_log: OpenLog, tmp_path: Path
) -> None:
    """The system reports it once to a descriptor: another ticket, or a roll, would promise too much."""
    for number, act in enumerate(("another ticket", "roll")):
        disk = FaultyDisk()
        log = open_log(tmp_path / str(number), filesystem=disk)
        fill(log, 1)
        first, second = log.appender.begin_sync(), log.appender.begin_sync()
        disk.fail("sync")
        with pytest.raises(OSError, match="Input/output") as problem:
            first.run()
        if act == "roll":
            with pytest.raises(BrokerFailure):
                log.roll()
        else:
            with pytest.raises(OSError, match="Input/output"):
                second.run()
            log.appender.write_failure.fail(problem.value)
        assert (log.unsynced_records, log.failure and log.failure.code) == (1, "storage_failed"), act
        assert outcome_of(log, encoded([b"x"])) == "storage_failed"


def test_retention_continues_after_a_failure(open_log: OpenLog) -> None:
    log = open_log(options=LogOptions(count_limit=1))
    stored = fill(log, 4)
    log.appender.write_failure.fail(OSError(errno.EIO, "failed"))
    assert log.trim(stored[2].pointer)[0] == 2
    assert list(log.read()) == stored[2:]


@pytest.mark.parametrize("kind", ["write", "create", "rename", "sync", "sync_directory"])
def test_interrupted_write_leaves_a_log_that_reports_it(
    open_log: OpenLog, clock: ManualClock, kind: Kind
) -> None:
    """Ctrl-C within an append or a roll: its progress is unknown, so the next start finds out."""
    disk = FaultyDisk()
    log = open_log(filesystem=disk)
    put(log, dense(1))
    disk.fail(kind, problem=KeyboardInterrupt(), written=70)
    act = log.roll if kind != "write" else lambda: bool(log.append_batches([dense(2)]))
    with pytest.raises(KeyboardInterrupt):
        act()
    disk.heal()
    assert values(log) == VALUES[0]
    if log.failure is None:
        assert kind == "sync", "nothing was being written"
    else:
        assert outcome_of(log, dense(2)) == "storage_failed"
        log.close()
        log = open_log()
    (second,) = put(log, dense(2))
    assert not second.duplicate
    assert values(log) == VALUES[0] + VALUES[1]


def test_append_interrupted_between_two_batches_is_discarded(open_log: OpenLog) -> None:
    """A batch whose write never came is not taken for stored when it is sent again."""
    log = open_log()

    class Interrupting(list[bytes]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield dense(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.append_batches(Interrupting())
    (first,) = put(log, dense(1))
    assert not first.duplicate
    assert values(log) == VALUES[0]


# -- opening ------------------------------------------------------------------------------------------------


def torn_log(open_log: OpenLog, directory: Path, clock: ManualClock) -> tuple[bytes, int]:
    """A log whose last batch, which was synced, is damaged; returns its bytes and its pointer."""
    log = open_log()
    log.append(b"before")
    size = log.info().bytes
    clock.step(60 * SECOND)
    pointer = log.append(b"damaged later").first
    log.sync()
    log.discard()
    path = segments(directory)[0]
    flip(path, size + 70)
    clock.step(-60 * SECOND)
    return path.read_bytes()[size:], pointer


def test_quarantine_that_is_interrupted_is_finished_by_the_next_opening(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    """At each step; the bytes are kept once, and the pointer of what they were is not reused."""
    torn, pointer = torn_log(open_log, directory, clock)
    disk = FaultyDisk()
    disk.operations.clear()
    with open_log(copy(directory, directory.with_name("counted")), filesystem=disk):
        steps = disk.count(*CHANGES)
    for nth in range(1, steps + 1):
        target, disk = copy(directory, directory.with_name(f"copy{nth}")), FaultyDisk()
        disk.die(nth)
        with pytest.raises(Died):
            Log.open(target, clock=clock, filesystem=disk).sync()
        with open_log(target) as log:
            assert log.append(b"goes on").first > pointer
            assert values(log) == [b"before", b"goes on"]
            log.roll()
        with open_log(target) as log:
            assert values(log) == [b"before", b"goes on"]
        assert [path.read_bytes() for path in target.glob("*.torn")] == [torn]
        assert not any(torn in path.read_bytes() for path in segments(target)), "cut off where it was"


def test_log_is_read_on_a_full_disk_though_it_needs_a_new_segment(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    """After a loss of power, and behind a torn end; it writes once there is room."""
    torn, pointer = torn_log(open_log, directory, clock)
    clock.reboot()
    disk = FaultyDisk()
    disk.fail("write", problem=errno.ENOSPC, lasting=True)
    log = open_log(filesystem=disk)
    assert values(log) == [b"before"]
    for _ in range(2):
        assert outcome_of(log, encoded([b"x"])) == "disk_low"
    with pytest.raises(Unavailable):
        log.roll()
    log.retain()
    log.close()
    log = open_log(filesystem=disk)
    assert log.trim(1) == (0, 0)
    disk.heal()
    assert log.append(b"goes on").first > pointer
    assert values(log) == [b"before", b"goes on"]
    assert [path.read_bytes() for path in directory.glob("*.torn")] == [torn]
    assert log.info().counters["torn_bytes"] == len(torn)
