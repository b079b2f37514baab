"""Mending a log: readers get what they got before, every byte is kept, and it may be interrupted anywhere."""

from __future__ import annotations

import contextlib
import errno
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.clocks import HOUR, START, ManualClock
from kit.disk.damage import flip
from kit.disk.doubles import Died, FaultyDisk, Kind
from kit.disk.logs import OpenLog, boundaries, encoded, fill, put, salvaged, segments
from quothlog import Log, LogOptions
from quothlog.recovery.repair import Mended, repair
from quothlog.recovery.verify import summaries
from quothwire.errors import Conflict, Damaged
from quothwire.record import Record

Corrupt = Callable[[Path], None]

BATCHES, RECORDS = 3, 4
LOG_ID = 77


@pytest.fixture
def stored(open_log: OpenLog) -> list[Record]:
    """A closed log of four segments with three batches of four records each, and its records."""
    with open_log(options=LogOptions(count_limit=BATCHES * RECORDS), log_id=LOG_ID) as log:
        return fill(log, 4 * BATCHES, RECORDS)


def whole(directory: Path) -> bool:
    """Return True if all bytes of all segments check, and all sealed ones have an index."""
    found = list(summaries(directory))
    checks = not any(damage.end > damage.start for one in found for damage in one.damages)
    return checks and all(one.indexed or not one.sealed for one in found)


def mend(directory: Path, **options: Any) -> list[Mended]:
    """Mend a log under the clock that it was made under."""
    return list(repair(directory, clock=ManualClock(START + HOUR), **options))


def read(directory: Path) -> list[Record]:
    """Read a log as a reader does that steps over damage."""
    with Log.open(directory, log_id=LOG_ID, clock=ManualClock(START + HOUR)) as log:
        return salvaged(log)


# -- what is damaged --------------------------------------------------------------------------------


def at(path: Path, row: int) -> int:
    """Return where a batch begins."""
    return boundaries(path, LOG_ID)[row]


def middle_body(path: Path) -> None:
    flip(path, at(path, 2) - 3)


def first_header(path: Path) -> None:
    flip(path, at(path, 0) + 20)


def block(path: Path) -> None:
    flip(path, 30)


def test_repair_leaves_an_intact_log_unchanged(stored: list[Record], directory: Path) -> None:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert mend(directory) == []
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert {name for name in after if after[name] != before.get(name)} <= {"lock"}
    assert before.keys() == after.keys()


def test_repair_rebuilds_an_index_that_does_not_agree(stored: list[Record], directory: Path) -> None:
    first, second, third, _ = (path.with_suffix(".idx") for path in segments(directory))
    right = [first.read_bytes(), second.read_bytes(), third.read_bytes()]
    first.unlink()
    shutil.copy(third, second)
    flip(third, 30)
    mended = mend(directory)
    assert sorted(mended) == [Mended(path, None, 0) for path in segments(directory)[:3]]
    assert [path.read_bytes() for path in (first, second, third)] == right


def test_segment_that_is_damaged_again_is_quarantined_again(stored: list[Record], directory: Path) -> None:
    path = segments(directory)[1]
    copies = []
    for number, corrupt in enumerate((middle_body, first_header), start=1):
        corrupt(path)
        copies.append(path.read_bytes())
        (mended,) = repair(directory)
        assert mended.kept == path.with_name(f"{path.name}.{number}.damaged")
    assert [path.with_name(f"{path.name}.{n}.damaged").read_bytes() for n in (1, 2)] == copies
    assert [record.value for record in read(directory)] == [
        record.value for record in (*stored[:12], *stored[20:])
    ]


def test_retries_are_recognised_behind_a_repaired_header_block(open_log: OpenLog, directory: Path) -> None:
    raws = [encoded([b"%d" % number], producer=9, sequence=number + 1) for number in range(9)]
    with open_log(options=LogOptions(count_limit=3)) as log:
        firsts = [put(log, raw)[0].first for raw in raws]
    _, second, third = segments(directory)
    block(second)
    second.with_suffix(".idx").unlink()
    mend(directory)
    second.with_suffix(".idx").unlink()
    block(third)  # now only the second one tells who had written before
    with Log.open(directory) as log:
        assert [(one.first, one.duplicate) for one in put(log, *raws)] == [(first, True) for first in firsts]


def test_progress_is_reported_in_bytes(stored: list[Record], directory: Path) -> None:
    middle_body(segments(directory)[1])
    steps: list[int] = []
    sizes = sum(path.stat().st_size for path in segments(directory))
    mend(directory, advance=steps.append)
    assert sum(steps) == sizes
    assert len(steps) > BATCHES * 4


def test_repair_of_a_directory_without_a_log_begins_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        mend(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_repair_refuses_an_open_log(open_log: OpenLog, directory: Path) -> None:
    with open_log() as log:
        fill(log, 3)
        with pytest.raises(Conflict, match="in use by process"):
            mend(directory)


# -- broken off -------------------------------------------------------------------------------------


@pytest.mark.parametrize("corrupt", [middle_body, block], ids=lambda corrupt: corrupt.__name__)
def test_repair_interrupted_at_each_change_of_the_disk_is_completed_by_the_next_one(
    stored: list[Record], directory: Path, tmp_path: Path, corrupt: Corrupt
) -> None:
    for path in segments(directory)[1:3]:
        corrupt(path)
    damaged = {path.read_bytes() for path in segments(directory)[1:3]}
    readable = read(shutil.copytree(directory, tmp_path / "unmended"))
    nth = 0
    while True:
        nth += 1
        target = shutil.copytree(directory, tmp_path / str(nth))
        disk = FaultyDisk(syncs=False)
        disk.die(nth, written=50)
        try:
            mend(target, filesystem=disk)
        except Died:
            assert read(shutil.copytree(target, tmp_path / f"{nth} at once")) == readable
            mend(target)
        else:
            break
        finally:
            assert read(target) == readable
        assert whole(target)
        assert damaged <= {path.read_bytes() for path in target.glob("*.damaged")}
    assert nth > 10


@pytest.mark.parametrize("problem", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_directory"])
def test_failing_disk_during_a_repair_costs_no_record(
    stored: list[Record], directory: Path, tmp_path: Path, kind: Kind, problem: int, rng: random.Random
) -> None:
    middle_body(segments(directory)[1])
    readable = read(shutil.copytree(directory, tmp_path / "unmended"))
    for nth in range(1, 6):
        target = shutil.copytree(directory, tmp_path / str(nth))
        disk = FaultyDisk(syncs=False)
        disk.fail(kind, nth, problem, written=rng.randrange(100))
        with contextlib.suppress(OSError):
            (mended,) = mend(target, filesystem=disk)
            assert bool(mended.problem) is (disk.count(kind) >= nth)
        assert read(target) == readable
        mend(target)
        assert whole(target)
        assert read(target) == readable


# -- strangers --------------------------------------------------------------------------------------


def test_repair_of_segments_of_several_logs_needs_the_log_id(
    stored: list[Record], directory: Path, tmp_path: Path
) -> None:
    """An embedded log whose newest file is another one's: nothing is done until the log is named."""
    with Log.open(tmp_path / "other", log_id=99) as other:
        other.append(b"x")
    (stranger,) = segments(tmp_path / "other")
    shutil.copy(stranger, directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(Damaged, match="several logs"):
        mend(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert directory / stranger.name in [one.path for one in mend(directory, log_id=LOG_ID)]
    assert [record.value for record in read(directory)] == [record.value for record in stored]


def test_rubbish_named_within_a_segment_costs_no_record(
    stored: list[Record], directory: Path, tmp_path: Path
) -> None:
    for row, content in enumerate((b"", bytes(500), b"rubbish" * 100, b"")):
        target = shutil.copytree(directory, tmp_path / str(row))
        rubbish = target / f"{stored[row * BATCHES * RECORDS + 5].pointer:017d}.seg"
        rubbish.write_bytes(content)
        readable = read(shutil.copytree(target, tmp_path / f"{row} unmended"))
        for _ in range(2):
            mend(target)
            assert read(target) == readable, row


def test_first_segment_under_another_name_is_still_read(stored: list[Record], directory: Path) -> None:
    first = segments(directory)[0]
    first.rename(first.with_name(f"{stored[0].pointer - 5_000:017d}.seg"))
    mend(directory)
    assert [record.value for record in read(directory)] == [record.value for record in stored]


def test_one_repair_mends_a_segment_before_a_misplaced_one(stored: list[Record], directory: Path) -> None:
    second = segments(directory)[1]
    shutil.copy(segments(directory)[0], directory / f"{stored[23].pointer:017d}.seg")
    middle_body(second)
    assert second in [one.path for one in mend(directory) if not one.problem]
    assert mend(directory) == []


@pytest.mark.parametrize("lose", ["a segment", "an end"])
def test_loss_after_a_repair_is_reported_too(stored: list[Record], directory: Path, lose: str) -> None:
    """The copies that the repair kept may be deleted before."""
    path = segments(directory)[1]
    middle_body(path)
    (mended,) = mend(directory)
    assert mended.kept is not None
    mended.kept.unlink()
    assert not [one for one in summaries(directory) if one.unmended]
    if lose == "a segment":
        segments(directory)[2].unlink()
    else:
        path.write_bytes(path.read_bytes()[: boundaries(path, LOG_ID)[-2]])
    assert len([one for one in summaries(directory) if one.unmended]) == 1
