"""Levels of reads: everything written, or what survives a loss of power, whatever the log shows to others."""

from __future__ import annotations

import os
import random
import secrets
from pathlib import Path

import pytest

from kit.broker.transactions import Loader
from kit.clocks import SECOND, ManualClock
from kit.disk.logs import OpenLog, encoded, fill, put
from kit.disk.memory_disk import MemoryDisk
from kit.scale import times
from quothlog import Log, LogOptions, decode
from quothlog.file_format import HORIZON_US
from quothlog.transactions.commit import Commit
from quothwire.record import Record
from quothwire.settings import DURABILITIES, Durability

LEVELS: tuple[Durability | None, ...] = (None, *DURABILITIES)
both = pytest.mark.parametrize("synced_reads", [False, True])


def seen(log: Log, durability: Durability | None = None) -> list[bytes]:
    """The values of a level, by each of the ways to read them, which have to agree."""
    read = list(log.read(durability=durability))
    columns = [value for one in log.batches(durability=durability) for value in one.values]
    assert decode(log.slice(0, durability=durability)) == read
    assert columns == [record.value for record in read]
    survey = log.survey(0, durability=durability)
    assert survey.count(0, survey.newest)[0].records == len(read)
    extract = log.fetch(0, durability=durability)
    first_ones = decode(extract.data, log.log_id) if extract is not None else []
    assert (bool(first_ones), first_ones) == (bool(read), read[: len(first_ones)])
    return columns


@both
def test_synced_read_ends_at_the_synced_end_and_a_written_one_does_not(
    open_log: OpenLog, synced_reads: bool
) -> None:
    log = open_log(options=LogOptions(synced_reads=synced_reads))
    put(log, encoded([b"1", b"2"]))
    log.sync()
    put(log, encoded([b"3"]), encoded([b"4"]))
    assert seen(log, "synced") == [b"1", b"2"]
    assert seen(log, "written") == [b"1", b"2", b"3", b"4"]
    assert seen(log) == seen(log, "synced" if synced_reads else "written")
    cursor = log.synced_pointer
    assert not log.slice(cursor, durability="synced")
    assert not log.slice(cursor + 5, durability="synced")
    assert log.fetch(cursor, durability="synced") is None
    log.sync()
    assert seen(log, "synced") == [b"1", b"2", b"3", b"4"]
    assert len(decode(log.slice(cursor, durability="synced"))) == 2


@both
def test_nothing_synced_yet_is_an_empty_range_of_every_call(open_log: OpenLog, synced_reads: bool) -> None:
    log = open_log(options=LogOptions(synced_reads=synced_reads))
    put(log, encoded([b"1"]), encoded([b"2"]))
    first = next(log.read(durability="written")).pointer
    for after in (0, first - 1, first, first + 1):
        assert not log.slice(after, durability="synced")
        assert log.file_ranges(after, durability="synced") == []
        assert log.advance(after, 3, durability="synced") == after
        assert not log.covers(after, durability="synced")
    assert log.covers(first, durability="written")
    assert log.info().first == (0 if synced_reads else first)


@both
def test_sealing_and_closing_make_records_synced(open_log: OpenLog, synced_reads: bool) -> None:
    options = LogOptions(synced_reads=synced_reads)
    log = open_log(options=options)
    put(log, encoded([b"1"]))
    log.roll()
    put(log, encoded([b"2"]))
    assert seen(log, "synced") == [b"1"]
    log.close()
    assert seen(open_log(options=options), "synced") == [b"1", b"2"]


@both
def test_no_read_shows_a_transaction_before_it_is_synced(open_log: OpenLog, synced_reads: bool) -> None:
    log = open_log(options=LogOptions(synced_reads=synced_reads))
    loader = Loader(log)
    put(log, encoded([b"before"]))
    outcome = loader.own.publish(loader.id, 1, [loader.stage(1, 0, [[b"x", b"y"]])])
    assert not isinstance(outcome, Commit)
    assert outcome is not None
    assert seen(log, "written") == [b"before"]
    assert seen(log, "synced") == []
    assert not log.covers(outcome.first, durability="written")
    assert log.advance(0, 9, durability="written") < outcome.first
    log.sync()
    loader.own.tidy()
    for level in LEVELS:
        assert seen(log, level) == [b"before", b"x", b"y"]


@both
def test_no_read_shows_a_large_transaction_before_it_is_adopted(
    open_log: OpenLog, synced_reads: bool
) -> None:
    log = open_log(options=LogOptions(size_limit=600, synced_reads=synced_reads))
    loader = Loader(log)
    put(log, encoded([b"before"]))
    part = loader.stage(1, 0, [[bytes(100)] * 4] * 3)
    outcome = loader.own.publish(loader.id, 1, [part])
    assert isinstance(outcome, Commit)
    outcome.prepare()
    loader.own.place(outcome)
    assert seen(log, "written") == [b"before"]
    outcome.commit()
    assert seen(log, "written") == [b"before"]
    loader.own.adopt(outcome)
    for level in LEVELS:
        assert len(seen(log, level)) == 13


@both
def test_no_read_shows_a_pointer_beyond_the_horizon(
    open_log: OpenLog, clock: ManualClock, synced_reads: bool
) -> None:
    """After a loss of power the log begins that far above the newest synced pointer, and no further."""
    log = open_log(options=LogOptions(synced_reads=synced_reads))
    put(log, encoded([b"1"]))
    log.sync()
    put(log, encoded([b"2"]))
    clock.step(HORIZON_US + SECOND)
    (beyond,) = put(log, encoded([b"3"]))
    assert seen(log, "written") == [b"1", b"2"]
    assert not log.slice(log.newest, durability="written") or synced_reads
    assert not log.covers(beyond.first, durability="written")
    log.sync()
    assert seen(log, "written") == [b"1", b"2", b"3"]


def test_changed_option_takes_nothing_back_and_leaves_the_levels_alone(open_log: OpenLog) -> None:
    log = open_log()
    put(log, encoded([b"1"]))
    log.options = LogOptions(synced_reads=True)
    put(log, encoded([b"2"]))
    assert (seen(log), seen(log, "written"), seen(log, "synced")) == ([b"1"], [b"1", b"2"], [])
    log.options = LogOptions()
    put(log, encoded([b"3"]))
    assert (seen(log), seen(log, "synced")) == ([b"1", b"2", b"3"], [])


def test_what_a_synced_slice_returned_survives_every_loss_of_power(tmp_path: Path) -> None:
    seed = int(os.environ.get("QUOTH_SEED", secrets.randbits(32)))
    print(f"QUOTH_SEED={seed}")
    rng = random.Random(seed)
    for number in range(times(40, 2_000)):
        memory, clock = MemoryDisk(), ManualClock(tick=3)
        at = tmp_path / str(number)
        options = LogOptions(size_limit=rng.choice((400, 3_000)))
        log = Log.open(at, filesystem=memory, clock=clock, options=options)
        returned: list[Record] = []
        for _ in range(rng.randint(1, 12)):
            fill(log, rng.randint(1, 3), rng.randint(1, 4))
            if rng.random() < 0.4:
                log.sync()
            after = returned[-1].pointer if returned else 0
            returned += decode(log.slice(after, durability="synced"))
        log.discard()
        memory.lose_power(rng)
        clock.reboot()
        with Log.open(at, filesystem=memory, clock=clock, options=options) as again:
            assert list(again.read(limit=len(returned))) == returned
