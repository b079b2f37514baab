"""Index files: derived, so whatever happens to them the log gives the same answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.clocks import ManualClock
from kit.disk.damage import flip
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, copy, encoded, fill, outcome_of, put, salvaged, segments
from quothlog import Appended, Log, LogOptions, file_format
from quothlog.file_format import LogPosition
from quothlog.index import INDEX_STEP_BYTES, SparseIndex
from quothlog.recovery import verify
from quothwire.errors import Damaged
from quothwire.record import Record

RAWS = [encoded([b"p%d" % i], 5, i) for i in range(1, 9)]


@pytest.fixture
def records(directory: Path, clock: ManualClock) -> list[Record]:
    """A closed log of three segments whose indexes have several positions, with a producer in all of them."""
    options = LogOptions(size_limit=5 * INDEX_STEP_BYTES)
    with Log.open(directory, clock=clock, options=options, log_id=99) as log:
        for i in range(120):
            log.append([b"%0*d" % (2_000, i), b"x" * 4_000])
            if i % 20 == 0:
                put(log, RAWS[i // 20])
        log.sync()
        assert log.info().segments == 3
        return list(log.read())


def indexes(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.idx"))


def each(corrupt: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return a function that corrupts every index of a log."""

    def corrupt_each(directory: Path) -> None:
        for path in indexes(directory):
            corrupt(path)

    return corrupt_each


def swapped(directory: Path) -> None:
    paths = indexes(directory)
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)


def made_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def of_another_log(path: Path) -> None:
    """With the name and the floor of this one."""
    point = file_format.decode_checkpoint(path.read_bytes())
    path.write_bytes(file_format.encode_checkpoint(point._replace(log_id=98)))


def with_a_false_offset(path: Path) -> None:
    """A valid checkpoint whose last batch lies elsewhere."""
    point = file_format.decode_checkpoint(path.read_bytes())
    point = point._replace(last_offset=point.last_offset - 8)
    path.write_bytes(file_format.encode_checkpoint(point))


def from_the_beginning(path: Path) -> None:
    """The checkpoint of the time when the segment was empty."""
    point = file_format.decode_checkpoint(path.read_bytes())
    block, start = file_format.decode_block(path.with_suffix(".seg").read_bytes()), point.entries[0]
    point = point._replace(
        end=start, chain=block.chain, last_offset=0, last_check=0, entries=[start],
        producers=block.producers,
    )  # fmt: skip
    path.write_bytes(file_format.encode_checkpoint(point))


CORRUPTIONS: dict[str, Callable[[Path], None]] = {
    "deleted": each(Path.unlink),
    "emptied": each(lambda path: path.write_bytes(b"")),
    "made a directory": each(made_a_directory),
    "swapped": swapped,
    "of another log": each(of_another_log),
    "with a false offset": each(with_a_false_offset),
    "from the beginning": each(from_the_beginning),
}


def assert_same_answers(log: Log, records: list[Record]) -> None:
    """Everything, from everywhere, and the retries too."""
    info = log.info()
    assert (info.first, info.last) == (records[0].pointer, records[-1].pointer)
    assert (info.first_ordinal, info.end_ordinal, info.segments) == (0, len(records), 3)
    assert list(log.read()) == records
    for i in range(0, len(records), 7):
        assert list(log.read(records[i].pointer - 1, limit=2)) == records[i : i + 2]
    stored = {record.value: record.pointer for record in records}
    for i in range(6):
        outcome = outcome_of(log, RAWS[i])
        assert isinstance(outcome, Appended)
        assert (outcome.first, outcome.duplicate) == (stored[b"p%d" % (i + 1)], True)
    assert log.end_ordinal == len(records)


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_corrupted_indexes_change_no_answer(
    records: list[Record], directory: Path, tmp_path: Path, open_log: OpenLog, corrupt: Callable[[Path], None]
) -> None:
    """Before the opening, and while the log is open."""
    for is_open in (False, True):
        target = copy(directory, tmp_path / f"open {is_open}")
        if not is_open:
            corrupt(target)
            is_sound = corrupt is CORRUPTIONS["from the beginning"]
            assert {one.indexed for one in verify.summaries(target)} == {is_sound}
        log = open_log(target)
        if is_open:
            corrupt(target)
        assert log.findings.torn_bytes == log.findings.damaged_bytes == 0
        assert_same_answers(log, records)
        stored = fill(log, 2)
        assert list(log.read()) == records + stored


def test_index_of_another_segment_or_log_proves_no_loss(
    records: list[Record], directory: Path, tmp_path: Path, open_log: OpenLog
) -> None:
    """An index with more records than the last segment has, beside which it lies."""
    for log_id in (99, 98):
        target = copy(directory, tmp_path / f"{log_id}")
        *_, before, last = indexes(target)
        point = file_format.decode_checkpoint(last.read_bytes())
        if log_id == 98:
            point = point._replace(log_id=log_id, floor=int(before.stem))
        before.write_bytes(file_format.encode_checkpoint(point))
        last.unlink()
        last.with_suffix(".seg").unlink()
        log = open_log(target)
        assert log.findings.lost_records == 0
        assert list(log.read()) == records[: log.end_ordinal]


def test_index_is_none_if_any_byte_is_changed_or_missing(records: list[Record], directory: Path) -> None:
    """The checksum covers all of it."""
    data = indexes(directory)[-1].read_bytes()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x08
        for data_of_none in (bytes(damaged), data[:place]):
            with pytest.raises(Damaged):
                file_format.decode_checkpoint(data_of_none)


@pytest.mark.parametrize("tick", [0, 1_000], ids=["at the same time", "later"])
def test_old_index_is_not_used_for_other_batches_of_the_same_sizes(
    directory: Path, clock: ManualClock, open_log: OpenLog, tick: int
) -> None:
    """The indexes differ only in the checksum of the last header: bytes are where each says."""
    clock.tick = 0
    log = open_log()
    empty = segments(directory)[0].read_bytes()
    put(log, encoded([b"old"], 5, 1), encoded([b"old"], 6, 1))
    log.close()
    index = indexes(directory)[0].read_bytes()
    segments(directory)[0].write_bytes(empty)
    indexes(directory)[-1].unlink()
    clock.tick = tick
    log = open_log()
    stored = [put(log, encoded([b"new"], producer, 1))[0] for producer in (7, 8)]
    log.sync()
    log.discard()
    (directory / segments(directory)[0].with_suffix(".idx").name).write_bytes(index)
    again = open_log()
    assert [record.pointer for record in again.read()] == [one.first for one in stored]
    (known,) = put(again, encoded([b"new"], 8, 1))
    assert known.duplicate
    (stranger,) = put(again, encoded([b"old"], 6, 1))
    assert not stranger.duplicate


def test_damaged_log_returns_the_same_batches_after_a_clean_end(
    records: list[Record], directory: Path, open_log: OpenLog
) -> None:
    """Over a clean end and a new start the reader meets the same batches."""
    last = segments(directory)[-1]
    flip(last, file_format.block_size(last.read_bytes()[:96]) + 4)
    indexes(directory)[-1].unlink()
    log = open_log()
    assert log.findings.damaged_bytes > 0
    stored = salvaged(log)
    log.close()
    assert salvaged(open_log()) == stored


def test_sparse_index_finds_the_boundary_before_every_pointer() -> None:
    rng = random.Random(7)
    positions = [LogPosition(96, 10, 0)]
    for _ in range(200):
        offset, pointer, ordinal = positions[-1]
        step = INDEX_STEP_BYTES + rng.randrange(5_000)
        positions.append(
            LogPosition(offset + step, pointer + rng.randint(1, 90), ordinal + rng.randint(1, 50))
        )
    index = SparseIndex(positions[:1])
    for position in positions:
        index.note(position)
        index.note(position._replace(offset=position.offset + INDEX_STEP_BYTES - 1))
    assert index.positions() == positions
    for after in range(10, positions[-1].pointer + 20):
        assert index.before(after) == max(one for one in positions if one.pointer <= after)
    assert index.before(0) == index.before(9) == positions[0]
    for _ in range(500):
        offset, ordinal = rng.randrange(96, positions[-1].offset), rng.randrange(positions[-1].ordinal + 9)
        below = [one for one in positions if one.offset <= offset and one.ordinal <= ordinal]
        assert index.leap(offset, ordinal) == max(below)


def test_an_opening_reads_each_index_once(open_log: OpenLog, directory: Path) -> None:
    """Decoding them takes most of its time: that of the last segment, and that of the one before it."""
    with open_log() as log:
        fill(log, 3)
        log.roll()
        fill(log, 3)
    disk = FaultyDisk()
    open_log(filesystem=disk)
    names = sorted(path.name for path in directory.glob("*.idx"))
    opened = [name for kind, name in disk.operations if kind == "open" and name.endswith(".idx")]
    assert sorted(opened) == names


def test_index_of_a_log_that_is_closed_is_durable(open_log: OpenLog, directory: Path) -> None:
    disk = FaultyDisk()
    with open_log(filesystem=disk) as log:
        fill(log, 1)
    (path,) = indexes(directory)
    assert "sync" in [one.kind for one in disk.operations if one.name == f"{path.name}.tmp"]
