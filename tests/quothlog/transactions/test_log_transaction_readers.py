"""Transactions as a crash, a reader without the lock, a backup and a repair find them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kit.broker.peers import refused
from kit.broker.transactions import Loader
from kit.clocks import ManualClock
from kit.disk.damage import flip
from kit.disk.doubles import Died, FaultyDisk
from kit.disk.logs import copy, segments, values
from kit.disk.staged_parts import PARTS, SMALL, WHOLE, sizes, stage_all
from quothlog import Appended, Log, LogOptions, Missing, Reader
from quothlog.backup.backup import Archiver
from quothlog.backup.restore import restore
from quothlog.recovery import verify
from quothlog.recovery.repair import repair
from quothlog.recovery.verify import Unfinished

OpenLog = Callable[..., Log]


# -- what a crash leaves ------------------------------------------------------------------------------------


def test_a_transaction_without_its_end_is_quarantined(
    open_log: OpenLog, directory: Path, tmp_path: Path, rng: random.Random
) -> None:
    """Wherever its write was broken off, nothing of it is there, and it can be published again."""
    log = open_log(options=SMALL)
    loader = Loader(log)
    log.append([b"before"])
    log.sync()
    start = log.info().bytes
    parts = stage_all(loader)
    appended = loader.own.publish(loader.id, 1, parts)
    assert isinstance(appended, Appended)
    (segment,) = segments(directory)
    end = segment.stat().st_size
    for number, cut in enumerate([start + 1, end - 1, *rng.sample(range(start, end), 12)]):
        crashed = copy(directory, tmp_path / f"{number}")
        os.truncate(crashed / segment.name, cut)
        (unfinished,) = (
            [step for step in verify.records(crashed) if isinstance(step, Unfinished)]
            if cut > start
            else [None]
        )
        assert unfinished is None or (unfinished.start, unfinished.end) == (start, cut)
        again = Loader(open_log(crashed, options=SMALL))
        assert values(again.log) == [b"before"], cut
        assert again.log.findings.torn_bytes == cut - start
        assert again.own.standing(again.id, 1).state == "staged"
        told = again.publish(1, parts)
        assert values(again.log) == [b"before", *WHOLE]
        assert cut == start or told.first > appended.first


# -- who looks without the lock -----------------------------------------------------------------------------


def drained(reader: Reader) -> list[bytes]:
    """All values that there are by now."""
    found: list[bytes] = []
    while records := reader.read():
        found += [record.value for record in records]
    return found


@sizes
def test_a_reader_never_sees_a_part(
    tmp_path: Path, clock: ManualClock, options: LogOptions, rng: random.Random
) -> None:
    """Wherever publishing breaks off: nothing, or all of it, and nothing is reported as missing."""
    fates = set()
    for nth in range(1, 200):
        directory = tmp_path / f"{nth}"
        disk = FaultyDisk(syncs=False)
        missing: list[Missing] = []
        log = Log.open(directory, filesystem=disk, clock=clock, options=options)
        log.append(b"before")
        with Reader(directory, on_missing=missing.append) as reader:
            assert drained(reader) == [b"before"]
            loader = Loader(log)
            parts = stage_all(loader)
            disk.die(nth, written=rng.choice([0, 700, 3_000]))
            with suppress(Died):
                loader.publish(1, parts)
            died = disk.struck_any
            seen = drained(reader)
            assert seen in ([], WHOLE), nth
            log._lock.release()
            with Log.open(directory, clock=clock, options=options) as log:
                loader = Loader(log)
                fates.add((bool(seen), loader.own.standing(loader.id, 1).state))
                loader.publish(1, parts)
                assert values(log) == [b"before", *WHOLE]
            assert seen + drained(reader) == WHOLE
            assert missing == []
        if not died:
            break
    else:
        raise AssertionError("publishing never ended")
    assert {(False, "staged"), (True, "published")} <= fates


# -- what else is done with such logs -----------------------------------------------------------------------


@sizes
def test_a_backup_has_it_whole_and_knows_it(
    open_log: OpenLog, directory: Path, tmp_path: Path, options: LogOptions
) -> None:
    """Staged batches are not in a backup; publishing again after a restore is recognised."""
    log = open_log(options=options)
    loader = Loader(log)
    log.append(b"before")
    told = loader.publish(1, stage_all(loader))
    loader.stage(2, 0, [[b"not published"]])
    archiver = Archiver(directory, log.log_id, tmp_path / "backup", log.newest, exact=True)
    assert list(archiver.run(lambda _bytes: None)) == []
    assert archiver.archive.records == 1 + len(WHOLE)
    restored = tmp_path / "restored"
    restored.mkdir()
    restore(tmp_path / "backup", archiver.archive, restored, log.log_id)
    other = Loader(open_log(restored, options=options))
    assert values(other.log) == [b"before", *WHOLE]
    assert other.publish(1, []).first == told.first
    assert other.own.standing(other.id, 2).state == "unknown"


@sizes
def test_a_repair_leaves_what_is_whole_and_what_is_staged(
    open_log: OpenLog, directory: Path, options: LogOptions
) -> None:
    """Only the damaged batch is gone, and the version is known."""
    log = open_log(options=options)
    loader = Loader(log)
    told = loader.publish(1, stage_all(loader))
    log.roll()
    named = [loader.stage(2, 0, [[b"staged"]])]
    log.close()
    broken = next(path for path in segments(directory) if b"2.1.0-" in path.read_bytes())
    flip(broken, broken.read_bytes().index(b"2.1.0-"))
    assert [mended.path for mended in repair(directory)] == [broken]
    loader = Loader(open_log(options=options))
    there = [record.value for record in loader.log.read()]
    assert there == [value for value in WHOLE if not value.startswith(b"2.1.")]
    assert loader.publish(1, []).first == told.first
    assert loader.publish(2, named).count == 1


def test_a_plan_that_does_not_check_is_told(open_log: OpenLog, directory: Path) -> None:
    open_log().close()
    (directory / "publication.plan").write_text("no plan\n")
    with refused("damaged"):
        open_log()
    (directory / "publication.plan").unlink()
    open_log().append(b"goes on")


def test_a_stranger_s_staged_files_are_no_part_of_this_log(
    open_log: OpenLog, directory: Path, tmp_path: Path
) -> None:
    """Copied files have batches with another log's id, or none."""
    other = Loader(open_log(tmp_path / "other"))
    part = other.stage(1, 0, PARTS[0])
    log = open_log()
    for path in (tmp_path / "other").glob("*.staged"):
        (directory / path.name).write_bytes(path.read_bytes())
    log.close()
    loader = Loader(open_log())
    with refused("not_staged"):
        loader.publish(1, [part])
