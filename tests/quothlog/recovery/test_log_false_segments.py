"""A file that is named like a segment and cannot be one: it moves no clock, hides nothing, and is kept."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.clocks import DAY, HOUR, ManualClock
from kit.disk.damage import flip, overwrite, zero
from kit.disk.logs import OpenLog, fill, segments, values
from quothlog import Log, LogOptions, Reader, file_format
from quothlog.backup.backup import Archiver
from quothlog.recovery import snapshot, verify
from quothlog.recovery.repair import repair
from quothlog.recovery.verify import Wrong
from quothwire.pointer import POINTER_MAX

LOG_ID = 0x5151
FAR = "01999999999999999.seg"


def of_another_log(path: Path, directory: Path) -> None:
    with Log.open(directory.with_name("another"), log_id=7) as log:
        fill(log, 2)
    shutil.copy(segments(directory.with_name("another"))[0], path)


NOTHING_OF_A_LOG = {"empty": b"", "zeros": bytes(5_000), "rubbish": b"x" * 2**20}
FALSE_SEGMENTS: dict[str, Callable[[Path, Path], object]] = {
    **{
        name: lambda path, _, content=content: path.write_bytes(content)  # type: ignore[misc]
        for name, content in NOTHING_OF_A_LOG.items()
    },
    "a copy of another one": lambda path, directory: shutil.copy(segments(directory)[0], path),
    "of another log": of_another_log,
}


@pytest.mark.parametrize("name", [FAR, f"{POINTER_MAX}.seg"])
@pytest.mark.parametrize("add", FALSE_SEGMENTS.values(), ids=FALSE_SEGMENTS)
def test_false_segment_moves_no_clock(
    open_log: OpenLog, directory: Path, tmp_path: Path, name: str, add: Callable[[Path, Path], object]
) -> None:
    """Quarantined once; before that a reader without the lock skips it, and reports its name."""
    with open_log(log_id=LOG_ID, options=LogOptions(count_limit=4)) as log:
        stored = fill(log, 5, 2)
    add(directory / name, directory)
    content = (directory / name).read_bytes()

    assert snapshot.false_segments_in(directory, LOG_ID) == [name]
    found = list(verify.summaries(directory, log_id=LOG_ID))
    assert [(one.damages, one.sealed) for one in found] == [((), True), ((), True), ((), False)]
    archiver = Archiver(directory, LOG_ID, tmp_path / "archive", stored[-1].pointer, exact=False)
    assert (list(archiver.run(lambda _bytes: None)), archiver.archive.newest) == ([], stored[-1].pointer)

    with open_log(log_id=LOG_ID) as log:
        more = fill(log, 1)
        assert more[0].pointer - stored[-1].pointer < 60_000_000
        assert log.findings.false_segments == [f"{name}.1.damaged"]
        assert list(log.read()) == stored + more
    assert (directory / f"{name}.1.damaged").read_bytes() == content
    with open_log(log_id=LOG_ID) as log:
        assert log.findings.false_segments == []
        assert log.info().gauges["quarantined_bytes"] == len(content)
    assert snapshot.false_segments_in(directory, LOG_ID) == []


@pytest.mark.parametrize("add", FALSE_SEGMENTS.values(), ids=FALSE_SEGMENTS)
def test_reader_beside_the_writer_skips_a_false_segment(
    open_log: OpenLog, directory: Path, add: Callable[[Path, Path], object]
) -> None:
    log = open_log(log_id=LOG_ID)
    stored = fill(log, 2)
    with Reader(directory) as reader:
        assert reader.read() == stored
        add(directory / FAR, directory)
        more = fill(log, 2)
        assert reader.read() == more
    with Reader(directory) as reader:
        assert reader.read() == stored + more


def test_a_possible_only_segment_is_no_false_segment(
    open_log: OpenLog, directory: Path, tmp_path: Path
) -> None:
    """An empty file is none; one with bytes may be all that is left. No pointer lies above all others."""
    (directory / FAR).parent.mkdir()
    (directory / FAR).touch()
    (directory / "99999999999999999.seg").touch()
    log = open_log(log_id=LOG_ID)
    assert fill(log, 1)[0].pointer < int(FAR[:17])
    assert log.findings.false_segments == [f"{FAR}.1.damaged"]
    assert log.findings.unknown_files == ["99999999999999999.seg"]
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / FAR).write_bytes(bytes(5_000))
    with open_log(alone, log_id=LOG_ID) as log:
        assert log.findings.false_segments == []
        assert fill(log, 1)[0].pointer > int(FAR[:17])


@pytest.mark.parametrize("row", [0, 1])
def test_empty_file_between_segments_changes_nothing(open_log: OpenLog, directory: Path, row: int) -> None:
    with open_log(log_id=LOG_ID, options=LogOptions(count_limit=4)) as log:
        stored = fill(log, 5, 2)
    name = file_format.segment_name(int(segments(directory)[row].stem) + (1 if row else -1))
    (directory / name).touch()
    assert [one.damages for one in verify.summaries(directory, log_id=LOG_ID)] == [()] * 3
    with open_log(log_id=LOG_ID) as log:
        assert (log.first_ordinal, list(log.read())) == (0, stored)
    assert not (directory / name).exists()


def whole(path: Path) -> None:
    zero(path, 0, path.stat().st_size)


def whole_and_no_index(path: Path) -> None:
    whole(path)
    path.with_suffix(file_format.INDEX_SUFFIX).unlink()


ROT: dict[str, Callable[[Path], None]] = {
    "a byte": lambda path: flip(path, 20),
    "the block": lambda path: zero(
        path, 0, file_format.block_size(path.read_bytes()[: file_format.BLOCK_BYTES])
    ),
    "all of it": whole,
    "all of it, and no index": whole_and_no_index,
    "all of it, with bytes that are no zeros": lambda path: overwrite(path, 0, b"x" * path.stat().st_size),
}


@pytest.mark.parametrize("damage", ROT)
def test_segment_with_a_damaged_header_block_is_no_false_segment(
    open_log: OpenLog, tmp_path: Path, clock: ManualClock, damage: str
) -> None:
    """The log goes on above its name, since a reader may have seen what it held, and `verify` goes on
    reporting it. It may be the only one of its log."""
    for earlier, batches in ((0, 0), (0, 2), (2, 0), (2, 2)):
        directory = tmp_path / f"{earlier} {batches}"
        log = open_log(directory, log_id=LOG_ID)
        stored = fill(log, earlier)
        log.roll()
        stored += fill(log, batches)
        log.close()
        path = segments(directory)[-1]
        ROT[damage](path)
        clock.step(-HOUR)
        for _ in range(2):
            with open_log(directory, log_id=LOG_ID) as log:
                assert log.findings.false_segments == []
                assert fill(log, 1)[0].pointer > max(int(path.stem), *(one.pointer for one in stored), 0)
                assert values(log)[:earlier] == [one.value for one in stored[:earlier]]
            found = [one for part in verify.summaries(directory, log_id=LOG_ID) for one in part.damages]
            assert (path, Wrong.BLOCK) in [(one.path, one.kind) for one in found]


@pytest.mark.parametrize("content", NOTHING_OF_A_LOG.values(), ids=NOTHING_OF_A_LOG)
@pytest.mark.parametrize("days", [0.9, 1.1])
def test_name_far_ahead_of_clock_and_log_makes_a_false_segment(
    open_log: OpenLog, directory: Path, days: float, content: bytes
) -> None:
    """A file that may be a false or a rotted segment is reported and not removed."""
    now = time.time_ns() // 1000
    clock = ManualClock(now - 400 * DAY)
    with open_log(log_id=LOG_ID, clock=clock) as log:
        fill(log, 1)
        clock.set(now)
        stored = fill(log, 1)
    clock.set(now - 300 * DAY)
    name = f"{stored[0].pointer + int(days * DAY):017d}.seg"
    (directory / name).write_bytes(content)
    assert snapshot.false_segments_in(directory, LOG_ID) == ([name] if days > 1 else [])
    with open_log(log_id=LOG_ID, clock=clock) as log:
        assert log.findings.false_segments == ([f"{name}.1.damaged"] if days > 1 else [])
        assert (fill(log, 1)[0].pointer > int(name[:17])) == (days < 1)


@pytest.mark.parametrize("name", ["its own", FAR])
def test_later_segment_of_another_log_is_a_false_segment(
    open_log: OpenLog, directory: Path, name: str
) -> None:
    """The one who opens it without an id gets the log of the oldest segment."""
    with open_log() as log:
        stored, log_id = fill(log, 2), log.log_id
    with Log.open(directory.with_name("another"), clock=ManualClock(stored[-1].pointer + HOUR)) as log:
        fill(log, 2)
    (foreign,) = segments(directory.with_name("another"))
    name = foreign.name if name == "its own" else name
    shutil.copy(foreign, directory / name)
    assert [one.log_id for one in verify.summaries(directory)] == [log_id]
    with Reader(directory) as reader:
        assert reader.read() == stored
    with open_log() as log:
        assert (log.log_id, list(log.read())) == (log_id, stored)
        assert log.findings.false_segments == [f"{name}.1.damaged"]


def test_repair_reports_the_quarantined_files(open_log: OpenLog, directory: Path) -> None:
    with open_log(log_id=LOG_ID) as log:
        fill(log, 2)
    (directory / FAR).write_bytes(NOTHING_OF_A_LOG["rubbish"])
    (mended,) = repair(directory, log_id=LOG_ID)
    assert mended[:3] == (directory / FAR, directory / f"{FAR}.1.damaged", 2**20)
