"""Looking at a log without its lock: the same records as the owner reads, exact damage, nothing written."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path

import pytest

from kit.disk.damage import flip
from kit.disk.logs import OpenLog, boundaries, fill, segments, verify_log
from kit.machine.processes import needs_proc, open_files
from quothlog import Log, LogOptions, file_format
from quothlog.recovery.snapshot import listing
from quothlog.recovery.verify import Damage, Wrong, records, summaries, summaries_in
from quothwire.errors import Damaged
from quothwire.record import Record

LOG_ID = 0x5151


def seen(directory: Path, after: int = 0) -> list[Record]:
    """Return the records that `verify` yields, which must find nothing wrong."""
    found, *wrong = verify_log(directory, after)
    assert wrong == [[], []]
    return found


@pytest.fixture
def stored(open_log: OpenLog) -> list[Record]:
    """A closed log of three segments with three batches of four records each, and its records."""
    with open_log(log_id=LOG_ID, options=LogOptions(count_limit=12)) as log:
        return fill(log, 9, 4)


# -- an undamaged log -------------------------------------------------------------------------------


def test_verify_reads_on_after_any_pointer(stored: list[Record], directory: Path) -> None:
    for row, record in enumerate(stored):
        assert seen(directory, record.pointer) == stored[row + 1 :]
        assert seen(directory, record.pointer - 1) == stored[row:]
    assert seen(directory, 0) == stored


def test_summaries_have_the_bounds_of_each_segment(stored: list[Record], directory: Path) -> None:
    for quick in (False, True):
        found = list(summaries(directory, quick=quick))
        assert [one.path for one in found] == segments(directory)
        assert [(one.first, one.last, one.records) for one in found] == [
            (stored[row].pointer, stored[row + 11].pointer, 12) for row in (0, 12, 24)
        ]
        assert [one.bytes for one in found] == [path.stat().st_size for path in segments(directory)]
        assert [one.sealed for one in found] == [True, True, False]
        assert [(one.unfinished, one.damages) for one in found] == [(0, ())] * 3


@needs_proc
def test_verify_writes_nothing_and_keeps_no_file_open(open_log: OpenLog, directory: Path) -> None:
    """Nor does it take the lock: the log is open."""
    log = open_log()
    (found,) = summaries(directory)
    assert (found.first, found.last, found.records, found.sealed, found.damages) == (0, 0, 0, False, ())
    stored = fill(log, 3)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}
    opened = len(open_files(directory))
    assert next(iter(records(directory))) == stored[0]  # the generator is dropped half-way
    assert seen(directory) == stored
    assert len(open_files(directory)) == opened
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()} == before


def test_directory_without_a_log_is_not_found(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError):
            next(summaries(path))
        with pytest.raises(FileNotFoundError):
            next(records(path))


# -- damage -----------------------------------------------------------------------------------------


def test_verify_reports_no_damage_before_the_cursor(stored: list[Record], directory: Path) -> None:
    path = segments(directory)[1]
    flip(path, boundaries(path, LOG_ID)[1] + 70)
    assert verify_log(directory, stored[15].pointer)[1], "a damaged batch directly behind the cursor"
    assert verify_log(directory, stored[18].pointer)[1], "a cursor inside of it"
    assert verify_log(directory, stored[19].pointer) == (stored[20:], [], [])


# -- beside the owner -------------------------------------------------------------------------------


@pytest.mark.parametrize("trims", [False, True])
def test_verify_beside_a_writing_owner_finds_no_damage(
    open_log: OpenLog, directory: Path, trims: bool
) -> None:
    """The report is always whole and in order, however reading and writing interleave.

    Without trims nothing is missing; with them segments may go between the listing and the opening.
    """
    log = open_log(options=LogOptions(size_limit=20_000))
    done = threading.Event()
    chance = random.Random(7)

    def write() -> None:
        try:
            number = 0
            for turn in range(300):
                count = chance.randrange(1, 60)
                log.append([b"%d " % (number + row) + b"x" * chance.randrange(200) for row in range(count)])
                number += count
                if trims and turn % 50 == 49:
                    log.trim(log.newest - 20_000)
        finally:
            done.set()

    fill(log, 1)
    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    try:
        while not done.is_set() or not looks:
            found, damages, _ = verify_log(directory)
            assert not damages
            numbers = [int(record.value.split()[0]) for record in found if b" " in record.value]
            assert numbers == (sorted(set(numbers)) if trims else list(range(len(numbers))))
            assert not [one.damages for one in summaries(directory, quick=looks % 2 == 0) if one.damages]
            looks += 1
    finally:
        writer.join()
    assert seen(directory) == list(log.read())


def test_segment_removed_during_a_verify_is_no_damage(stored: list[Record], directory: Path) -> None:
    found = records(directory)
    assert next(found) == stored[0]
    for path in segments(directory)[:2]:
        path.unlink()
    assert list(found) == stored[1:12] + stored[24:], "an open one stays, a missing one is passed over"


def test_end_cut_off_during_a_verify_is_no_damage(stored: list[Record], directory: Path) -> None:
    """As a start of the owner does: what was there and is not any more is no damage."""
    path = segments(directory)[-1]
    found = records(directory, stored[23].pointer)
    assert next(found) == stored[24]
    os.truncate(path, path.stat().st_size // 2)
    assert not [one for one in found if isinstance(one, Damage)]


# -- piece by piece ---------------------------------------------------------------------------------


def test_summary_of_one_segment_is_the_same_as_among_all(stored: list[Record], directory: Path) -> None:
    """Also those whose neighbours are missing, damaged, or none of this log."""
    with Log.open(directory.parent / "other") as other:
        fill(other, 2)
    (foreign,) = segments(directory.parent / "other")
    shutil.copy(foreign, directory / f"{stored[14].pointer:017d}.seg")
    flip(segments(directory)[1], 20)
    segments(directory)[0].unlink()
    listed = listing(directory, LOG_ID)
    expected = list(summaries(directory))
    assert [len(one.damages) for one in expected] == [1, 1, 0]
    assert [one for row in range(3) for one in summaries_in(listed, range(row, row + 1))] == expected
    assert [*summaries_in(listed, range(1)), *summaries_in(listed, range(1, 3))] == expected


def test_segment_removed_by_retention_is_not_missing(stored: list[Record], directory: Path) -> None:
    listed = listing(directory, 0)
    segments(directory)[0].unlink()
    (found,) = summaries_in(listed, range(1, 2))
    assert (found.records, found.ordinal, found.damages) == (12, 12, ())
    assert list(summaries_in(listed, range(1))) == []


# -- kinds of damage --------------------------------------------------------------------------------


def test_segment_with_records_of_the_one_before_is_damage(stored: list[Record], directory: Path) -> None:
    """A copy of the log went on for itself, and a segment of its own came back."""
    fork = directory.with_name("fork")
    shutil.copytree(directory, fork)
    for place, count_limit in ((directory, 12), (fork, 4)):
        with Log.open(place, options=LogOptions(count_limit=count_limit)) as log:
            fill(log, 8)
    path = segments(fork)[-1]
    shutil.move(path, directory / path.name)
    damages = [damage for one in summaries(directory) for damage in one.damages]
    assert [(one.kind, one.path, one.records, one.ordinal) for one in damages] == [
        (Wrong.OVERLAP, segments(directory)[-2], 0, 40)
    ]


def test_bytes_behind_the_producer_table_are_zeros(log: Log, directory: Path) -> None:
    """All of a header block is covered: by its checksums, or because there is nothing to be."""
    path = segments(directory)[0]
    block = file_format.decode_block(path.read_bytes())
    raw = bytearray(file_format.encode_block(block._replace(producers=b"\x91" * 5)))
    assert len(raw) == file_format.BLOCK_BYTES + 8
    assert file_format.decode_block(bytes(raw)).producers == b"\x91" * 5
    for offset in range(file_format.BLOCK_BYTES, len(raw)):
        raw[offset] ^= 1
        with pytest.raises(Damaged):
            file_format.decode_block(bytes(raw))
        raw[offset] ^= 1
