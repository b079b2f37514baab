"""A log up to a moment: copied beside its owner into files that never change, and brought back from them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from kit.clocks import DAY, HOUR, SECOND, START, ManualClock
from kit.disk.damage import flip, truncate
from kit.disk.doubles import Died, FaultyDisk
from kit.disk.logs import OpenLog, encoded, fill, put, salvaged, segments
from kit.scale import times
from quothlog import Appended, Log, LogOptions
from quothlog.backup.backup import Archive, Archiver, discard
from quothlog.backup.restore import restore
from quothlog.recovery import verify
from quothlog.recovery.verify import Damage
from quothlog.storage.filesystem import FileSystem
from quothwire.errors import Damaged
from quothwire.record import Record

SMALL = LogOptions(count_limit=10)


def archived(
    log: Log,
    target: Path,
    clock: ManualClock,
    until: int | None = None,
    *,
    advance: Callable[[int], None] = lambda _size: None,
    filesystem: FileSystem | None = None,
) -> tuple[Archive, list[Damage], int]:
    """Copy a log as it was at a moment, or is now; returns it, the damages, the bytes copied."""
    moment = clock.now() if until is None else until
    disk = filesystem or FaultyDisk(syncs=False)
    exact = until is not None
    archiver = Archiver(log.directory, log.log_id, target, moment, exact=exact, filesystem=disk, clock=clock)
    damages = list(archiver.run(advance))
    discard(disk, target, archiver.archive)
    return archiver.archive, damages, archiver.copied


def restored(
    source: Path, archive: Archive, at: Path, log_id: int, clock: ManualClock, until: int | None = None
) -> Log:
    """Bring a log back and open it."""
    at.mkdir()
    restore(source, archive, at, log_id, until=until, clock=clock)
    return Log.open(at, log_id=log_id, clock=clock, filesystem=FaultyDisk(syncs=False))


def up_to(records: list[Record], batches: list[Appended], moment: int) -> list[Record]:
    """The records of the batches that begin up to a moment."""
    ends = [one.last for one in batches if one.first <= moment]
    return [record for record in records if ends and record.pointer <= ends[-1]]


def test_backup_of_any_history_restores_any_time_of_it(tmp_path: Path, rng: random.Random) -> None:
    for number in range(times(12, 1_000)):
        here = tmp_path / str(number)
        clock = ManualClock(START)
        history: list[Appended] = []
        options = LogOptions(count_limit=rng.randrange(1, 30))
        with Log.open(here / "log", options=options, clock=clock, filesystem=FaultyDisk(syncs=False)) as log:
            for row in range(rng.randrange(1, 60)):
                clock.step(rng.choice((0, 1, 3, SECOND, HOUR, -SECOND)))
                history.append(log.append([b"%d.%d" % (row, i) for i in range(rng.randrange(1, 6))]))
                if rng.random() < 0.1:
                    log.roll()
                if rng.random() < 0.05:
                    log.trim(history[rng.randrange(len(history))].first)
            records = list(log.read())
            moment = rng.choice(
                [START, history[-1].last, *(rng.choice(history).first + i for i in (-1, 0, 2))]
            )
            archive, damages, _ = archived(log, here / "kept", clock, moment)
            earlier = rng.choice(history).first - rng.randrange(2)
            newest, log_id = log.newest, log.log_id
            clock.set(START - rng.choice((0, DAY)))
        assert damages == []
        with restored(here / "kept", archive, here / "back", log_id, clock) as log:
            assert list(log.read()) == up_to(records, history, moment)
            assert log.append(b"new").first > newest + 10 * SECOND
            assert [record.value for record in log.read(newest)] == [b"new"]
        assert not any(one.damages for one in verify.summaries(here / "back"))
        if earlier < moment:
            with restored(here / "kept", archive, here / "earlier", log_id, clock, earlier) as log:
                assert list(log.read()) == up_to(records, history, earlier)
                assert log.append(b"new").first > newest + 10 * SECOND
        shutil.rmtree(here)


def test_restored_log_keeps_ordinals_and_producers(
    open_log: OpenLog, clock: ManualClock, tmp_path: Path
) -> None:
    log = open_log(options=SMALL)
    raws = [encoded([b"%d" % number], producer=7, sequence=number) for number in range(1, 36)]
    stored = put(log, *raws)
    log.trim(stored[12].first)
    archive, _, _ = archived(log, tmp_path / "kept", clock, stored[29].last)
    put(log, *(encoded([b"later"], producer=7, sequence=number) for number in (36, 37)))
    clock.step(DAY)
    with restored(tmp_path / "kept", archive, tmp_path / "back", log.log_id, clock) as back:
        assert (back.log_id, back.first_ordinal, back.end_ordinal) == (log.log_id, 10, 30)
        assert put(back, *raws[20:30]) == [replace(one, duplicate=True) for one in stored[20:30]]
        assert not put(back, raws[30])[0].duplicate
        assert back.end_ordinal == 31


def test_repeated_backup_copies_new_files_only(open_log: OpenLog, clock: ManualClock, tmp_path: Path) -> None:
    log, kept = open_log(options=SMALL), tmp_path / "kept"
    fill(log, 35)
    archived(log, kept, clock)
    before = {path.name: path.stat() for path in kept.iterdir()}
    assert archived(log, kept, clock)[2] == 0
    fill(log, 20)
    archive, _, copied = archived(log, kept, clock)
    after = {path.name: path.stat() for path in kept.iterdir()}
    assert copied == sum(after[name].st_size for name in after.keys() - before.keys())
    assert sorted(after) == sorted(file.name for file in archive.files)
    stayed = before.keys() & after.keys()
    assert len(stayed) == 6, "three sealed segments and their indexes"
    for name in stayed:
        assert (before[name].st_ino, before[name].st_mtime_ns) == (
            after[name].st_ino,
            after[name].st_mtime_ns,
        )


def test_backup_of_a_log_ahead_of_the_clock_is_complete_unless_a_time_is_given(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    fill(log, 3)
    clock.step(-DAY)
    fill(log, 3)
    assert archived(log, tmp_path / "kept", clock)[0].records == 6
    assert archived(log, tmp_path / "kept", clock, clock.now())[0].records == 0


def test_backup_interrupted_anywhere_is_continued_by_the_next_one(
    open_log: OpenLog, clock: ManualClock, tmp_path: Path
) -> None:
    log = open_log(options=SMALL)
    stored = fill(log, 35)
    until = clock.now()
    for nth in count(1):
        kept, disk = tmp_path / f"kept-{nth}", FaultyDisk(syncs=False)
        disk.die(nth, written=nth % 2 * 40)
        with suppress(Died):
            archived(log, kept, clock, until, filesystem=disk)
            break
        whole = sum(path.stat().st_size for path in kept.iterdir() if path.suffix != ".tmp")
        archive, _, copied = archived(log, kept, clock, until)
        assert copied == archive.bytes - whole, "what was finished is not copied again"
        assert sorted(path.name for path in kept.iterdir()) == sorted(file.name for file in archive.files)
        with restored(kept, archive, tmp_path / f"back-{nth}", log.log_id, clock) as back:
            assert list(back.read()) == stored
    assert nth > 20


def test_changed_backup_file_is_detected(log: Log, clock: ManualClock, tmp_path: Path) -> None:
    fill(log, 3)
    archive, _, _ = archived(log, tmp_path / "kept", clock)
    (file,) = archive.files
    path = tmp_path / "kept" / file.name
    file.check(path.parent)
    for offset in range(file.bytes):
        flip(path, offset)
        with pytest.raises(Damaged, match="does not check"):
            file.check(path.parent)
        flip(path, offset)
    truncate(path, file.bytes - 1)
    with pytest.raises(Damaged, match="does not check"):
        file.check(path.parent)
    path.unlink()
    with pytest.raises(Damaged, match="is missing"):
        file.check(path.parent)


@pytest.mark.parametrize("what", ["retention of some", "retention of all", "appends and rolls"])
def test_backup_beside_a_writing_owner_has_no_hole(
    open_log: OpenLog, clock: ManualClock, tmp_path: Path, what: str
) -> None:
    """The new state is copied if retention removes the whole log: it begins where the old one ended."""
    log = open_log(options=SMALL)
    stored = fill(log, 35)
    later: list[Record] = []

    def act(_size: int) -> None:
        if what == "appends and rolls":
            fill(log, 7)
        elif what == "retention of some":
            log.trim(stored[25].pointer)
        elif not later:
            log.roll()
            log.trim(stored[-1].pointer + 1)
            later.extend(fill(log, 15))

    archive, damages, _ = archived(log, tmp_path / "kept", clock, advance=act)
    first = {"retention of some": 20, "retention of all": 35}.get(what, 0)
    assert (damages, archive.first_ordinal, archive.end_ordinal) == ([], first, 35)
    with restored(tmp_path / "kept", archive, tmp_path / "back", log.log_id, clock) as back:
        assert list(back.read()) == stored[first:]
        assert (back.first_ordinal, back.end_ordinal) == (first, 35)


def test_backup_copies_damaged_bytes_unchanged(open_log: OpenLog, clock: ManualClock, tmp_path: Path) -> None:
    """A batch, or a header block, of the first segment, one in the middle, and the last one."""
    for number, (row, in_block) in enumerate([(0, False), (1, False), (-1, False), (1, True), (-1, True)]):
        log = open_log(tmp_path / str(number), options=SMALL)
        fill(log, 35)
        path = segments(log.directory)[row]
        flip(path, 20 if in_block else path.stat().st_size // 2)
        survived = salvaged(log)
        kept, back = tmp_path / f"{number} kept", tmp_path / f"{number} back"
        archive, damages, _ = archived(log, kept, clock)
        assert [one.path for one in damages] == [path]
        assert archive.records == 35
        with restored(kept, archive, back, log.log_id, clock) as restored_log:
            assert salvaged(restored_log) == survived
