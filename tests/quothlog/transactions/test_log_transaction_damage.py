"""Transactions where the disk has rotted, where files are gone, and where one fault meets another: nothing
that does not check is stored as if it did, and nothing else of the topic suffers from it."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from kit.broker.peers import refused
from kit.broker.transactions import LARGE, PARTS, SMALL, WHOLE, Loader, sizes, stage_all, staged
from kit.clocks import HOUR, ManualClock
from kit.disk.damage import flip, truncate
from kit.disk.doubles import CHANGES, Died, FaultyDisk
from kit.disk.logs import OpenLog, copy, encoded, outcome_of, salvaged, segments, values, verify_log
from kit.scale import some
from quothlog import Appended, Log, LogOptions, Missing, Reader
from quothlog.backup.backup import Archiver
from quothlog.backup.restore import restore
from quothlog.file_format import PLAN_NAME
from quothlog.recovery.repair import repair
from quothlog.storage.filesystem import TEMPORARY_SUFFIX
from quothlog.transactions.commit import Commit
from quothwire import batch
from quothwire.errors import Damaged
from quothwire.protocol.transaction import StagedPart


def read_staged(loader: Loader, parts: list[StagedPart]) -> None:
    """Publish, as far as what is staged is read for that; an error is raised with its own code."""
    outcome = loader.own.publish(loader.id, 1, parts)
    if isinstance(outcome, Commit):
        try:
            outcome.prepare()
        except Damaged as problem:
            raise loader.own.withdraw(outcome, problem) from problem


def rot(path: Path, value: bytes) -> None:
    """Let the disk rot within a value."""
    flip(path, path.read_bytes().index(value) + len(value) // 2)


# -- what is staged -----------------------------------------------------------------------------------------


CORRUPTIONS: dict[str, Callable[[Path], None]] = {
    "rotten": lambda directory: rot(max(directory.glob("*.staged")), WHOLE[-1]),
    "rotten header": lambda directory: rot(min(directory.glob("*.staged")), batch.MAGIC),
    "shorter": lambda directory: truncate(first := min(directory.glob("*.staged")), _size(first) - 100),
    "gone": lambda directory: min(directory.glob("*.staged")).unlink(),
}


def _size(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.parametrize(
    ("corruption", "options"),
    [*product(CORRUPTIONS, [SMALL, LARGE])],
)
def test_damaged_staged_file_costs_its_transaction_only(
    open_log: OpenLog, directory: Path, corruption: str, options: LogOptions
) -> None:
    """Rotten bytes get no checksum that says they are sound, and missing ones move nothing in the log."""
    log = open_log(options=options)
    loader = Loader(log)
    parts = stage_all(loader)
    CORRUPTIONS[corruption](directory)
    with refused("damaged"):
        read_staged(loader, parts)
    if corruption == "gone":
        with refused("damaged"):
            loader.own.stage(loader.id, 1, 0, 7, 4, staged([b"one more"], 1))
    log.append(b"after")
    assert (values(log), log.failure) == ([b"after"], None)
    loader.own.abort(loader.id, 1)
    assert loader.publish(1, stage_all(loader, attempt=8)).count == len(WHOLE)
    assert values(log) == [b"after", *WHOLE]


def test_torn_staged_file_does_not_hide_the_next_one(
    open_log: OpenLog, directory: Path, tmp_path: Path, clock: ManualClock
) -> None:
    """Or what was acknowledged behind it would be gone at the opening after the next."""
    Loader(open_log()).stage(1, 0, PARTS[0][:2])
    crashed = copy(directory, tmp_path / "crashed")
    with next(crashed.glob("*.staged")).open("ab") as file:
        file.write(staged(PARTS[0][2], 1)[:100])
    loader = Loader(open_log(crashed))
    clock.step(12 * HOUR)  # so another file begins
    part = loader.stage(1, 0, PARTS[0])
    assert len(list(crashed.glob("*.staged"))) == 2
    loader = Loader(open_log(copy(crashed, tmp_path / "later")))
    assert loader.publish(1, [part]).count == 12


@pytest.mark.parametrize("restart", [False, True])
def test_staged_files_are_bounded(open_log: OpenLog, restart: bool) -> None:
    """However small: each has to be looked at when the topic is opened. Adding to one is still possible."""
    log = open_log()
    loader = Loader(log, files_max=5)
    parts = stage_all(loader)
    if restart:
        log.close()
        loader = Loader(open_log(), files_max=5)
    with refused("staged_max"):
        loader.stage(2, 0, [[b"one file more"]])
    more = loader.stage(1, 0, [*PARTS[0], [b"one batch more"]])
    assert loader.publish(1, [more, *parts[1:]]).count == len(WHOLE) + 1
    for version in range(2, 10):
        loader.stage(version, 0, [[b"x"]])
        loader.own.abort(loader.id, version)


# -- one fault beside another -------------------------------------------------------------------------------


def test_transaction_is_published_although_the_log_fails_meanwhile(open_log: OpenLog) -> None:
    """Refusing others then does not make the log forget what it has just stored."""
    log = open_log(options=LARGE)
    loader = Loader(log)
    publication = loader.own.publish(loader.id, 1, stage_all(loader))
    assert isinstance(publication, Commit)
    publication.prepare()
    loader.own.place(publication)
    log.appender.write_failure.fail(OSError(errno.EIO, "an fsync of what others had written"))
    assert outcome_of(log, encoded([b"x"])) == "storage_failed"
    publication.commit()
    published = loader.own.adopt(publication)
    assert loader.own.standing(loader.id, 1)[:3] == ("published", published.first, published.count)


@pytest.mark.parametrize("others", [0, 1])
def test_transaction_without_its_end_is_quarantined_behind_a_damaged_header_block_too(
    open_log: OpenLog, directory: Path, tmp_path: Path, others: int
) -> None:
    """A part of it would be there for good, and a second publish would be answered with that part."""
    log = open_log(options=SMALL)
    log.append(b"sealed")
    log.roll()
    for _ in range(others):
        log.append(b"before")
    loader = Loader(log)
    parts = stage_all(loader)
    assert isinstance(loader.own.publish(loader.id, 1, parts), Appended)
    crashed = copy(directory, tmp_path / "crashed")
    _, last = segments(crashed)
    truncate(last, last.stat().st_size - 300)
    flip(last, 20)
    loader = Loader(open_log(crashed, options=SMALL))
    there = [b"sealed"] + [b"before"] * others
    assert [record.value for record in salvaged(loader.log)] == there
    assert loader.log.end_ordinal == len(there)
    assert len(loader.log.findings.quarantined) == 1
    published = loader.publish(1, parts)
    assert (published.count, published.duplicate) == (len(WHOLE), False)
    assert [record.value for record in salvaged(loader.log)] == [*there, *WHOLE]


@pytest.mark.parametrize("rotten", [0, 5])
def test_complete_transaction_is_kept_behind_a_damaged_header_block(
    open_log: OpenLog, directory: Path, tmp_path: Path, rotten: int
) -> None:
    """Damage costs what is damaged, also where it is a batch behind which others have to follow."""
    log = open_log(options=SMALL)
    log.append(b"sealed")
    log.roll()
    loader = Loader(log)
    loader.publish(1, stage_all(loader))
    crashed = copy(directory, tmp_path / "crashed")
    _, last = segments(crashed)
    rot(last, WHOLE[3 * rotten])
    flip(last, 20)
    log = open_log(crashed, options=SMALL)
    sound = [*WHOLE[: 3 * rotten], *WHOLE[3 * rotten + 3 :]]
    assert [record.value for record in salvaged(log)] == [b"sealed", *sound]
    assert log.findings.quarantined == []


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
        (unfinished,) = verify_log(crashed)[2] if cut > start else [None]
        assert unfinished is None or (unfinished.start, unfinished.end) == (start, cut)
        again = Loader(open_log(crashed, options=SMALL))
        assert values(again.log) == [b"before"], cut
        assert again.log.findings.torn_bytes == cut - start
        assert again.own.standing(again.id, 1).state == "staged"
        published = again.publish(1, parts)
        assert values(again.log) == [b"before", *WHOLE]
        assert cut == start or published.first > appended.first


# -- who looks without the lock -----------------------------------------------------------------------------


def drained(reader: Reader) -> list[bytes]:
    """All values that there are by now."""
    found: list[bytes] = []
    while records := reader.read():
        found += [record.value for record in records]
    return found


@sizes
def test_reader_never_sees_a_part_of_a_transaction(
    tmp_path: Path, clock: ManualClock, options: LogOptions, rng: random.Random
) -> None:
    """Wherever publishing breaks off: nothing, or all of it, and nothing is reported as missing."""
    fates = set()

    def publish(directory: Path, nth: int) -> int:
        """Let the process die at the n-th change, if there are so many; returns how many there were."""
        disk = FaultyDisk(syncs=False)
        missing: list[Missing] = []
        log = Log.open(directory, filesystem=disk, clock=clock, options=options)
        log.append(b"before")
        with Reader(directory, on_missing=missing.append) as reader:
            assert drained(reader) == [b"before"]
            loader = Loader(log)
            parts = stage_all(loader)
            before = disk.count(*CHANGES)
            disk.die(nth, written=rng.choice([0, 700, 3_000]))
            with suppress(Died):
                loader.publish(1, parts)
            changes = disk.count(*CHANGES) - before
            assert disk.struck_any == (changes >= nth)
            seen = drained(reader)
            assert seen in ([], WHOLE), nth
            log.discard()
            disk.heal()
            with Log.open(directory, filesystem=disk, clock=clock, options=options) as log:
                loader = Loader(log)
                fates.add((bool(seen), loader.own.standing(loader.id, 1).state))
                loader.publish(1, parts)
                assert values(log) == [b"before", *WHOLE]
            assert seen + drained(reader) == WHOLE
            assert missing == []
        return changes

    every = range(1, publish(tmp_path / "calm", 1_000) + 1)
    for nth in every if options is SMALL else (1, *some(every[1:], rng, 3)):
        publish(tmp_path / f"{nth}", nth)
    assert {(False, "staged"), (True, "published")} <= fates


# -- what else is done with such logs -----------------------------------------------------------------------


@sizes
def test_backup_has_a_complete_transaction_and_its_version(
    open_log: OpenLog, directory: Path, tmp_path: Path, options: LogOptions
) -> None:
    """Staged batches are not in a backup; publishing again after a restore is recognised."""
    log = open_log(options=options)
    loader = Loader(log)
    log.append(b"before")
    published = loader.publish(1, stage_all(loader))
    loader.stage(2, 0, [[b"not published"]])
    archiver = Archiver(directory, log.log_id, tmp_path / "backup", log.newest, exact=True)
    assert list(archiver.run(lambda _bytes: None)) == []
    assert archiver.archive.records == 1 + len(WHOLE)
    restored = tmp_path / "restored"
    restored.mkdir()
    restore(tmp_path / "backup", archiver.archive, restored, log.log_id)
    other = Loader(open_log(restored, options=options))
    assert values(other.log) == [b"before", *WHOLE]
    assert other.publish(1, []).first == published.first
    assert other.own.standing(other.id, 2).state == "unknown"


@sizes
def test_repair_keeps_intact_and_staged_batches(
    open_log: OpenLog, directory: Path, options: LogOptions
) -> None:
    """Only the damaged batch is gone, and the version is known."""
    log = open_log(options=options)
    loader = Loader(log)
    published = loader.publish(1, stage_all(loader))
    log.roll()
    named = [loader.stage(2, 0, [[b"staged"]])]
    log.close()
    broken = next(path for path in segments(directory) if b"2.1.0-" in path.read_bytes())
    flip(broken, broken.read_bytes().index(b"2.1.0-"))
    assert [mended.path for mended in repair(directory)] == [broken]
    loader = Loader(open_log(options=options))
    there = [record.value for record in loader.log.read()]
    assert there == [value for value in WHOLE if not value.startswith(b"2.1.")]
    assert loader.publish(1, []).first == published.first
    assert loader.publish(2, named).count == 1


def test_damaged_plan_is_reported(open_log: OpenLog, directory: Path) -> None:
    open_log().close()
    (directory / "publication.plan").write_text("no plan\n")
    with refused("damaged"):
        open_log()
    (directory / "publication.plan").unlink()
    open_log().append(b"goes on")


def test_staged_files_of_another_log_are_ignored(open_log: OpenLog, directory: Path, tmp_path: Path) -> None:
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


def test_what_lies_before_a_large_one_is_synced_with_it(open_log: OpenLog, directory: Path) -> None:
    """A transaction that is published counts as synced, with all before it."""
    disk = FaultyDisk()
    log = open_log(options=LARGE, filesystem=disk)
    log.append(b"before")
    (path,) = segments(directory)
    loader = Loader(log)
    loader.publish(1, stage_all(loader))
    synced = [one.name for one in disk.operations if one.kind == "sync"]
    before = synced[: synced.index(f"{PLAN_NAME}{TEMPORARY_SUFFIX}")]
    assert before.count(f"{path.name}{TEMPORARY_SUFFIX}") == 2, "when it was begun, and now"
