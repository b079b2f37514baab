"""The writer of slabs: one for a directory, sound after crashes and on disks that fail."""

from __future__ import annotations

import errno
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kit.disk.doubles import Died, FaultyDisk
from kit.scale import some
from quothlog import Log
from quothlog.slabs import SlabGap, SlabReader, SlabRecord, SlabWriter, slab_writer
from quothlog.slabs.slab_format import encode_record, slab_name
from quothlog.storage import filesystem
from quothwire.errors import BrokerFailure, Conflict, QuothError, RequestError, Unavailable


def values_in(directory: Path, *, finished: bool = False) -> list[bytes]:
    return [one.value for one in SlabReader(directory, finished=finished) if isinstance(one, SlabRecord)]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_one_process_writes_and_no_file_shows_it(directory: Path) -> None:
    with SlabWriter(directory) as writer:
        with pytest.raises(Conflict, match="locked"):
            SlabWriter(directory)
        writer.write(b"value")
    assert [*contents(directory)] == [slab_name(0)]
    with SlabWriter(directory) as writer:
        assert writer.address == 13


def test_wrong_values_and_settings_are_refused_and_nothing_is_written(directory: Path) -> None:
    for slab_bytes in (0, True):
        with pytest.raises(RequestError, match="bad_setting"):
            SlabWriter(directory, slab_bytes)
    with SlabWriter(directory) as writer:
        for value in (b"", "text", None):
            with pytest.raises(RequestError, match="bad_request"):
                writer.write(value)  # type: ignore[arg-type]
        assert writer.address == 0
    with pytest.raises(QuothError, match="closed"):
        writer.write(b"late")
    assert contents(directory) == {slab_name(0): b""}


def test_a_directory_that_holds_something_else_is_refused(directory: Path) -> None:
    with Log.open(directory) as log:
        log.append(b"value")
    before = contents(directory)
    with pytest.raises(RequestError, match=r"bad_setting: .* it holds '0"):
        SlabWriter(directory)
    assert contents(directory) == before


def test_records_are_seen_once_they_are_flushed(directory: Path) -> None:
    with SlabWriter(directory) as writer:
        writer.write(b"value")
        assert values_in(directory) == []
        writer.flush()
        assert values_in(directory) == [b"value"]
        large = b"x" * 100_000
        writer.write(large)
        writer.write(b"next")
        assert values_in(directory) == [b"value", large], "what a buffer has no room for is written"


@pytest.mark.parametrize("torn", [b"\5", b"\5\0\0\0....hel", b"\5\0\0\0....hello", bytes(100)])
def test_a_torn_end_stays_and_a_new_slab_begins_behind_it(directory: Path, torn: bytes) -> None:
    with SlabWriter(directory) as writer:
        writer.write(b"first")
    slab = directory / slab_name(0)
    slab.write_bytes(slab.read_bytes() + torn)
    before = slab.read_bytes()
    with SlabWriter(directory) as writer:
        assert writer.write(b"second") == len(before)
    assert slab.read_bytes() == before
    first, gap, second = SlabReader(directory)
    assert (first, second) == (SlabRecord(0, b"first"), SlabRecord(len(before), b"second"))
    assert isinstance(gap, SlabGap)
    assert (gap.address, gap.next) == (13, len(before))


def test_a_sync_reaches_files_and_names(directory: Path) -> None:
    disk = FaultyDisk()
    with SlabWriter(directory, 20, filesystem=disk) as writer:
        writer.write(b"a" * 20)
        at_roll = [one.kind for one in disk.operations[-4:]]
        assert at_roll[-3:] == ["sync", "create", "sync_directory"] or "sync" in at_roll
        writer.write(b"b")
        done = disk.count("sync"), disk.count("sync_directory")
        writer.sync()
        assert (disk.count("sync"), disk.count("sync_directory")) == (done[0] + 1, done[1] + 1)
        disk.fail("sync")
        with pytest.raises(BrokerFailure, match="storage_failed"):
            writer.sync()
        with pytest.raises(BrokerFailure, match="storage_failed"):
            writer.write(b"c")
        assert writer.failure is not None


@pytest.mark.parametrize("written", [0, 1, 30])
def test_a_full_disk_refuses_and_the_retry_stores_each_record_once(directory: Path, written: int) -> None:
    disk = FaultyDisk()
    with SlabWriter(directory, 100, filesystem=disk) as writer:
        writer.write(b"a" * 20)
        disk.fail("write", problem=errno.ENOSPC, written=written)
        with pytest.raises(Unavailable, match="disk_low"):
            writer.flush()
        disk.heal()
        disk.fail("create", problem=errno.ENOSPC, lasting=True)
        for letter in (b"b", b"c", b"d"):
            writer.write(letter * 20)
        address = writer.address
        with pytest.raises(Unavailable, match="disk_low"):
            writer.write(b"x" * 20)
        assert writer.address == address, "it was not taken"
        disk.heal()
        writer.write(b"e" * 20)
    assert values_in(directory, finished=True) == [bytes([letter]) * 20 for letter in b"abcde"]
    assert [*contents(directory)] == [slab_name(0), slab_name(112)]


@contextmanager
def interruption(line: int) -> Iterator[list[str]]:
    """Ctrl-C at the n-th line that the writer or its file system runs; yields the place once it came."""
    came: list[str] = []
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        code = frame.f_code
        if code.co_filename not in (slab_writer.__file__, filesystem.__file__):
            return None
        if code.co_name in ("__del__", "close"):  # from which nothing can be raised
            return None
        left -= event == "line"
        if not left and not came:
            came.append(f"{code.co_filename}:{frame.f_lineno}")
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            yield came
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("begins_a_slab", [False, True])
def test_an_interrupt_anywhere_neither_doubles_nor_shifts(tmp_path: Path, begins_a_slab: bool) -> None:
    line, places = 0, list[str]()
    while len(places) == line:
        line += 1
        directory = tmp_path / str(line)
        with SlabWriter(directory, 60) as writer:
            expected = {writer.write(b"before"): b"before"}
            address, value = writer.address, b"interrupted" * (1 + 5 * begins_a_slab)
            with interruption(line) as came:
                writer.write(value)
                writer.flush()
            places += came
            if writer.address > address:
                expected[address] = value
            for number in range(9):
                expected[writer.write(b"%d" % number)] = b"%d" % number
        found = list(SlabReader(directory, finished=True))
        assert {one.address: getattr(one, "value", None) for one in found} == expected, came
    assert len(places) > 20


def test_a_slab_that_begins_within_another_is_not_continued(directory: Path) -> None:
    """As a backup that was copied over a directory may leave them: no record begins at its address."""
    directory.mkdir()
    for address, values in ((0, (b"a" * 50, b"b" * 50)), (100, (b"c" * 92,))):
        (directory / slab_name(address)).write_bytes(b"".join(map(encode_record, values)))
    for value in (b"later", b"last"):
        with SlabWriter(directory) as writer:
            writer.write(value)
    assert [*contents(directory)] == [slab_name(0), slab_name(100), slab_name(200)]
    assert values_in(directory, finished=True) == [b"a" * 50, b"b" * 50, b"later", b"last"]


def test_a_second_program_in_the_directory_is_noticed(directory: Path) -> None:
    """The original takes no lock."""
    with SlabWriter(directory) as writer, (directory / slab_name(0)).open("ab") as other:
        other.write(b"others")
        other.flush()
        with pytest.raises(BrokerFailure, match="another program writes"):
            writer.flush()


def crashes() -> Iterator[tuple[int, int]]:
    for change in range(1, 25):
        for written in (0, 3, 10, 40):
            yield change, written


def test_after_a_crash_at_any_change_records_are_whole_and_writing_continues(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    for change, written in some(list(crashes()), random.Random(seed), 3):
        directory = tmp_path / f"{change}-{written}"
        disk = FaultyDisk()
        disk.die(change, written)
        synced: list[bytes] = []
        values = [b"%d" % number * 9 for number in range(10)]
        try:
            with SlabWriter(directory, 60, filesystem=disk) as writer:
                for number, value in enumerate(values):
                    writer.write(value)
                    if number % 2:
                        writer.sync()
                        synced = values[: number + 1]
        except Died:
            pass
        else:
            continue
        writer = None  # type: ignore[assignment]
        with SlabWriter(directory, 60) as writer:
            writer.write(b"afterwards")
        found = values_in(directory)
        assert found[-1] == b"afterwards"
        assert found[:-1] == values[: len(found) - 1]
        assert len(found) > len(synced), (change, written)
