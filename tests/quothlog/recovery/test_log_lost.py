"""Records that were synced and are gone, and what a crash may take without a loss: two different things.

An index is written about synced bytes only. So where the last segment ends before its checkpoint, records are
lost, even if the file ends where a batch does. A footer or an index that a loss of power took is no loss.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kit.broker.transactions import LARGE, Loader, stage_all
from kit.clocks import HOUR, ManualClock
from kit.disk.damage import flip, truncate, zero
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, boundaries, copy, encoded, fill, outcome_of, segments
from quothlog import Appended, Log, LogOptions, file_format
from quothlog.backup.backup import Archiver
from quothlog.file_format import HORIZON_US
from quothlog.recovery import verify
from quothlog.recovery.repair import repair
from quothlog.recovery.verify import Damage, Wrong
from quothlog.storage.filesystem import File, PosixFileSystem
from quothwire.errors import Damaged
from quothwire.record import Record

LOG_ID = 0x5151
BATCHES, RECORDS = 4, 3


@pytest.fixture
def stored(open_log: OpenLog) -> list[Record]:
    """The records of a log that was closed, two batches in a sealed segment and four in the last one."""
    with open_log(log_id=LOG_ID) as log:
        stored = fill(log, 2, RECORDS)
        log.roll()
        return stored + fill(log, BATCHES, RECORDS)


def lost_in(directory: Path) -> list[tuple[int, int]]:
    """(ordinal, records) of everything that is missing and that no repair has dealt with."""
    return [(one.ordinal, one.records) for one in damages(directory) if not one.closed]


def damages(directory: Path) -> list[Damage]:
    return [damage for one in verify.summaries(directory) for damage in one.damages]


def cut_with_damaged_block(path: Path, end: int) -> None:
    truncate(path, end)
    flip(path, 20)


def empty_index(path: Path) -> None:
    path.with_suffix(file_format.INDEX_SUFFIX).write_bytes(bytes(200))


def empty_footer(path: Path) -> None:
    zero(path, path.stat().st_size - file_format.FOOTER_BYTES, path.stat().st_size)


def take_both(path: Path) -> None:
    path.with_suffix(file_format.INDEX_SUFFIX).unlink()
    empty_footer(path)


CORRUPTIONS: dict[str, Callable[[Path, int], None]] = {
    "cut where a batch ends": truncate,
    "cut within a batch": lambda path, end: truncate(path, end + 70),
    "zeros": lambda path, end: zero(path, end, path.stat().st_size),
    "cut where a batch ends, and no header block": cut_with_damaged_block,
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_missing_synced_records_are_reported_and_their_pointers_never_reused(
    open_log: OpenLog,
    directory: Path,
    tmp_path: Path,
    clock: ManualClock,
    stored: list[Record],
    corruption: str,
) -> None:
    """Inspection and opening report it, and afterwards the gap in the ordinals does, until it is repaired."""
    clock.step(-HOUR)  # or the clock alone would keep the pointers apart
    for kept in range(BATCHES):
        target = copy(directory, tmp_path / str(kept))
        path = segments(target)[-1]
        index = path.with_suffix(file_format.INDEX_SUFFIX)
        proof = index.read_bytes()
        CORRUPTIONS[corruption](path, boundaries(path, LOG_ID)[kept])
        lost = (BATCHES - kept) * RECORDS
        left, first = stored[:-lost], stored[-lost]
        if "header block" not in corruption:
            assert lost_in(target) == [(len(left), lost)]
        with open_log(target, log_id=LOG_ID) as log:
            assert log.findings.lost_records == log.info().counters["lost_records"] == lost
            assert log.findings.lost_after < first.pointer <= stored[-1].pointer == log.findings.lost_until
            more = fill(log, 1)
            assert more[0].pointer > stored[-1].pointer
            assert list(log.read()) == left + more
            assert index.read_bytes() == proof
            found = log.fetch(left[-1].pointer)
            assert found is not None
            assert found.ordinal == len(stored)
            assert log.loss(left[-1].pointer, len(left), found) == (lost, lost)
            assert log.loss(left[-1].pointer, -1, found).damaged >= lost
        with open_log(target, log_id=LOG_ID) as again:
            assert again.findings.lost_records == 0, "one opening reports it"
        assert sum(records for _, records in lost_in(target)) == lost, "and verifying until it is repaired"
        list(repair(target, log_id=LOG_ID))
        assert [(one.records, one.closed) for one in damages(target)] == [(lost, True)]


@pytest.mark.parametrize("row", range(3))
def test_emptied_segment_is_no_false_segment(
    open_log: OpenLog, directory: Path, tmp_path: Path, clock: ManualClock, row: int
) -> None:
    """Inspection, opening and the gap report what it held: no ordinal is given out twice."""
    with open_log(log_id=LOG_ID, options=LogOptions(count_limit=6)) as log:
        stored = fill(log, 9, 2)
    path = segments(directory)[row]
    index = path.with_suffix(file_format.INDEX_SUFFIX).read_bytes()
    truncate(path, 0)
    left = stored[: row * 6] + stored[row * 6 + 6 :]
    clock.step(-HOUR)

    def is_reported() -> bool:
        wrong = [one for one in damages(directory) if not one.closed]
        assert {one.path for one in wrong} == {path}
        return [one.records for one in wrong] == [-1 if row == 0 else 6]

    assert is_reported()
    archiver = Archiver(directory, LOG_ID, tmp_path / "archive", stored[-1].pointer, exact=False)
    assert path in {damage.path for damage in archiver.run(lambda _bytes: None)}
    for _ in range(2):
        with open_log(log_id=LOG_ID) as log:
            assert log.findings.false_segments == []
            told_lost = log.findings.lost_records
            assert log.end_ordinal == 18
            assert list(log.read()) == left
            if row < 2:
                assert path.with_suffix(file_format.INDEX_SUFFIX).read_bytes() == index
        assert told_lost == 0 or (told_lost, row) == (6, 2)
        assert is_reported()
    with open_log(log_id=LOG_ID) as log:
        (more,) = fill(log, 1)
        assert more.pointer > stored[-1].pointer
        found = log.fetch(more.pointer - 1)
        assert found is not None
        assert found.ordinal == 18
    assert is_reported()
    list(repair(directory, log_id=LOG_ID))
    with open_log(log_id=LOG_ID) as log:
        assert (log.findings.false_segments, list(log.read())) == ([], [*left, more])
    assert [(one.records, one.closed) for one in damages(directory)] == ([(6, True)] if row else [])


def test_newest_segment_overwritten_by_another_is_no_false_segment(
    open_log: OpenLog, directory: Path, clock: ManualClock, stored: list[Record]
) -> None:
    """Its index still says what was synced of it."""
    first, last = segments(directory)
    last.write_bytes(first.read_bytes())
    clock.step(-HOUR)
    left = stored[: -BATCHES * RECORDS]
    assert [one.path for one in damages(directory)] == [last]
    for lost in (BATCHES * RECORDS, 0):
        with open_log(log_id=LOG_ID) as log:
            assert (log.findings.false_segments, log.findings.lost_records) == ([], lost)
            assert log.append(b"above").first > stored[-1].pointer
            assert [one for one in log.read() if one.value != b"above"] == left
            found = log.fetch(left[-1].pointer)
            assert found is not None
            assert found.ordinal == len(stored)
    assert sum(max(one.records, 0) for one in damages(directory)) == BATCHES * RECORDS


@pytest.mark.parametrize("log_id", [0, LOG_ID])
def test_emptied_only_segment_of_an_embedded_log_begins_no_new_log(
    open_log: OpenLog, directory: Path, log_id: int
) -> None:
    with open_log(log_id=LOG_ID) as log:
        stored = fill(log, 2)
    (path,) = segments(directory)
    truncate(path, 0)
    if not log_id:
        with pytest.raises(Damaged, match=r"no segment in .* has a header block"):
            open_log()
        assert path.exists()
        return
    with open_log(log_id=log_id) as log:
        assert (log.findings.lost_records, log.end_ordinal) == (2, 2)
        assert fill(log, 1)[0].pointer > stored[-1].pointer


def test_full_disk_preserves_the_evidence_of_a_loss(
    directory: Path, clock: ManualClock, stored: list[Record]
) -> None:
    """Closing a log that has no room to go on above lost records does not hide the loss."""
    path = segments(directory)[-1]
    truncate(path, boundaries(path, LOG_ID)[2])
    clock.step(-HOUR)
    disk = FaultyDisk()
    disk.fail("write", problem=errno.ENOSPC, lasting=True)
    for _ in range(2):
        with Log.open(directory, filesystem=disk, clock=clock) as log:
            assert log.findings.lost_records == 2 * RECORDS
            assert list(log.read()) == stored[: -2 * RECORDS]
    disk.heal()
    with Log.open(directory, filesystem=disk, clock=clock) as log:
        assert log.append(b"above").first > stored[-1].pointer + HORIZON_US


def test_index_of_another_segment_proves_no_loss(
    open_log: OpenLog, directory: Path, stored: list[Record]
) -> None:
    first, last = (path.with_suffix(file_format.INDEX_SUFFIX) for path in segments(directory))
    path = segments(directory)[-1]
    truncate(path, boundaries(path, LOG_ID)[1])
    last.write_bytes(first.read_bytes())
    assert lost_in(directory) == []
    assert open_log().findings.lost_records == 0


def test_segment_closed_or_removed_during_a_verify_has_no_loss(open_log: OpenLog, directory: Path) -> None:
    """The index counts records that were not there when the inspection began."""
    for removed in (False, True):
        log = open_log()
        fill(log, 2)
        looking = verify.steps(directory)
        next(looking)
        fill(log, 2)
        log.close()
        if removed:
            segments(directory)[-1].unlink()
        assert not [step for _, step in looking if isinstance(step, Damage)]


# -- what is derived ----------------------------------------------------------------------------------------

CUTS: dict[str, Callable[[Path], None]] = {
    "no footer": lambda path: truncate(path, path.stat().st_size - file_format.FOOTER_BYTES),
    "a piece of the footer": lambda path: truncate(path, path.stat().st_size - 40),
    "zeros in place of the footer": empty_footer,
    "no index": lambda path: path.with_suffix(file_format.INDEX_SUFFIX).unlink(),
    "an index of zeros": empty_index,
    "neither": take_both,
}


@pytest.mark.parametrize("cut", CUTS)
def test_derived_parts_lost_in_a_power_cut_are_no_damage_and_are_rebuilt(
    open_log: OpenLog, directory: Path, clock: ManualClock, cut: str
) -> None:
    log = open_log(log_id=LOG_ID, options=LogOptions(count_limit=6))
    stored = fill(log, 9, 2)
    log.discard()
    sealed = segments(directory)[:-1]
    whole = [path.read_bytes() for path in sealed]
    assert len(sealed) == 2
    for path in sealed:
        CUTS[cut](path)
    found = list(verify.summaries(directory))
    assert [one.unmended for one in found] == [[]] * 3
    assert {damage.kind for one in found for damage in one.damages} <= {Wrong.FOOTER}
    if cut != "no footer":  # a reader does without, and cannot tell that there has to be one
        assert [one.derived for one in found] == [2 if cut == "neither" else 1] * 2 + [0]
    after_a_death = copy(directory, directory.with_name("of a process"))
    open_log(after_a_death, log_id=LOG_ID).close()
    assert segments(after_a_death)[1].read_bytes() == whole[1], "the one in whose roll the process died"
    clock.reboot()
    disk = FaultyDisk()
    with open_log(log_id=LOG_ID, filesystem=disk) as log:
        for path in sealed:  # the next opening does not look there again
            kinds = [one.kind for one in disk.operations if one.name == path.name]
            assert "write" not in kinds or "sync" in kinds[kinds.index("write") :]
        assert list(log.read()) == stored
    assert [path.read_bytes() for path in sealed] == whole
    again = list(verify.summaries(directory))
    assert [(one.damages, one.derived, one.indexed) for one in again[:2]] == [((), 0, True)] * 2


def test_damaged_segment_gets_no_new_footer(open_log: OpenLog, directory: Path, clock: ManualClock) -> None:
    """An opening rebuilds nothing where records are missing: that is left to a repair."""
    log = open_log(log_id=LOG_ID, options=LogOptions(count_limit=6))
    fill(log, 6, 2)
    path = segments(directory)[0]
    flip(path, boundaries(path, LOG_ID)[1] + 5)
    take_both(path)
    left = path.read_bytes()
    lose_power(log, clock)
    open_log(log_id=LOG_ID).close()
    assert path.read_bytes() == left
    assert (2, 2) in lost_in(directory)


def lose_power(log: Log, clock: ManualClock) -> None:
    """Let the owner die and the machine boot again; what was written had reached the disk."""
    log.discard()
    clock.reboot()


def test_opening_rebuilds_derived_parts_after_two_power_cuts(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    """Its index is written without a sync, and it is of another boot than the segment behind it."""
    log = open_log()
    stored = fill(log, 5, 2)
    lose_power(log, clock)
    log = open_log()
    stored += fill(log, 1)
    assert [(one.damages, one.derived) for one in verify.summaries(directory)] == [((), 0)] * 2
    empty_index(segments(directory)[0])
    lose_power(log, clock)
    log = open_log()
    assert log.findings.rebuilt == [segments(directory)[0].name]
    stored += fill(log, 1)
    assert [(one.damages, one.derived) for one in verify.summaries(directory)] == [((), 0)] * 3
    assert list(log.read()) == stored


class UnwritableFile(PosixFileSystem):
    """A disk on which one file cannot be opened to be written over."""

    def __init__(self, name: str) -> None:
        self._name = name

    def open(self, path: Path, *, append: bool = False, overwrite: bool = False) -> File:
        """See `FileSystem.open`."""
        if overwrite and path.name == self._name:
            raise OSError(errno.EACCES, "Permission denied", str(path))
        return super().open(path, append=append, overwrite=overwrite)


def test_segment_that_cannot_be_rebuilt_does_not_prevent_others(
    open_log: OpenLog, directory: Path, tmp_path: Path, clock: ManualClock
) -> None:
    """Without its header block the one before it is not rebuilt either: its end is unknown."""
    log = open_log(log_id=LOG_ID, options=LogOptions(count_limit=6))
    stored = fill(log, 13, 2)
    lose_power(log, clock)
    names = [path.name for path in segments(directory)]
    for path in segments(directory)[:2]:
        take_both(path)
    for row, rebuilt in ((2, names[:1]), (-1, [names[1], names[0]])):
        target = copy(directory, tmp_path / str(row))
        flip(segments(target)[row], 20)
        log = open_log(target, log_id=LOG_ID)
        assert log.findings.rebuilt == rebuilt
        assert list(log.read()) == stored
    take_both(segments(directory)[-2])
    log = open_log(filesystem=UnwritableFile(names[-2]), log_id=LOG_ID)
    assert log.findings.rebuilt == [names[1], names[0]]


def test_rebuilt_index_in_front_of_a_large_transaction_knows_the_producers(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    """The segments of a transaction have no table, so what is behind them may have to learn from it."""
    raw = encoded([b"once"], 5, 1)
    with open_log(options=LARGE) as log:
        first = outcome_of(log, raw)
        loader = Loader(log)
        loader.publish(1, stage_all(loader))
    path = segments(directory)[0]
    path.with_suffix(file_format.INDEX_SUFFIX).unlink()
    clock.reboot()
    with open_log(options=LARGE) as log:
        assert path.name in log.findings.rebuilt
    *_, behind, last = segments(directory)
    behind.with_suffix(file_format.INDEX_SUFFIX).unlink()
    flip(last, 8)
    again = outcome_of(open_log(options=LARGE), raw)
    assert isinstance(first, Appended)
    assert again == replace(first, duplicate=True)
