"""The port to the file system: the real disk and the double of it in memory keep the same promises."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, fill
from kit.disk.memory_disk import MemoryDisk
from kit.pure import needs_compiled, outcome, pure
from quothlog.storage.filesystem import (
    FileSystem,
    PosixFileSystem,
    read_now,
    sync_directory,
    write_durably,
)
from quothwire.errors import Unavailable

DISKS: dict[str, Callable[[], FileSystem]] = {
    "the real one": PosixFileSystem,
    "in memory": MemoryDisk,
    "the real one behind the failing one": FaultyDisk,
    "in memory behind the failing one": lambda: FaultyDisk(MemoryDisk()),
}


@pytest.fixture(params=DISKS.values(), ids=list(DISKS))
def disk(request: pytest.FixtureRequest, directory: Path) -> FileSystem:
    """A disk with the directory of this test on it."""
    made: FileSystem = request.param()
    made.make_directory(directory)
    return made


def content(disk: FileSystem, path: Path) -> bytes:
    file = disk.open(path)
    data = file.read(file.size() + 1, 0)
    file.close()
    return data


def test_appended_bytes_are_read_back(disk: FileSystem, directory: Path) -> None:
    file = disk.create(directory / "a")
    assert (file.size(), file.read(10, 0)) == (0, b"")
    file.append([b"one", bytearray(b"two"), memoryview(b"-three")[1:]])
    file.append([])
    file.append([b""])
    file.append([b"!"])
    assert file.size() == 12
    assert file.read(5, 0) == b"onetw"
    assert file.read(100, 6) == b"three!"
    assert file.read(4, 12) == file.read(4, 99) == b""
    file.sync()
    file.truncate(6)
    file.append([b"end"])
    assert content(disk, directory / "a") == b"onetwoend"
    file.close()
    file.close()


def test_list_names_a_file_that_has_taken_the_place_of_all_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a log makes a segment and removes those before it, while another process lists them."""
    directory.mkdir()
    old, new = directory / "old", directory / "new"
    old.write_bytes(b"1")
    scandir = os.scandir

    def beside_an_owner(path: Path) -> AbstractContextManager[list[os.DirEntry[str]]]:
        with scandir(path) as entries:
            listed = list(entries)
        new.write_bytes(b"22")
        old.unlink(missing_ok=True)
        return nullcontext(listed)

    monkeypatch.setattr(os, "scandir", beside_an_owner)
    assert PosixFileSystem().list(directory) == {"new": 2}


@needs_compiled
def test_the_compiled_read_from_memory_does_what_the_one_in_python_does(directory: Path) -> None:
    """The bytes, if all are there; for arguments that make no sense, None or the same exception."""
    in_python = pure("quothlog.storage.filesystem").read_now
    path = directory / "a"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(range(256)) * 1_000)
    with path.open("rb") as file:
        fd = file.fileno()
        plain: list[tuple[Any, ...]] = [(fd, 0, 0), (fd, 256_000, 0), (fd, 7, 255_993), (fd, 8, 255_993)]
        wrong = (2**31, 2**62, 2**64, None, "1", 1.0)
        hostile = [*((one, 1, 0) for one in (-1, *wrong)), *((fd, 1, one) for one in wrong), (fd, -1, 0)]
        for arguments in (*plain, *hostile):
            assert outcome(read_now, *arguments) == outcome(in_python, *arguments), arguments


def test_many_buffers_are_one_append(disk: FileSystem, directory: Path) -> None:
    """More of them than one call of the operating system takes."""
    buffers = [b"%05d" % i for i in range(5_000)]
    file = disk.create(directory / "a")
    file.append(buffers)
    assert content(disk, directory / "a") == b"".join(buffers)


def test_parts_of_a_file_without_blocks_are_passed_over(directory: Path) -> None:
    """A double of the disk may say that everything is data."""
    disk = PosixFileSystem()
    path = directory / "sparse"
    disk.make_directory(directory)
    with path.open("wb") as raw:
        raw.write(b"one")
        raw.seek(2**30)
        raw.write(b"two")
        raw.truncate(2**40)
    file = disk.open(path)
    second = file.data_from(2**20)
    assert 2**20 < second <= 2**30
    assert file.read(2**20, second).strip(b"\0") == b"two"
    assert (file.data_from(0), file.data_from(2)) == (0, 2)
    assert file.data_from(2**31) == file.data_from(2**40) == 2**40
    file.close()


@pytest.mark.parametrize("disk", DISKS.values(), ids=list(DISKS), indirect=True)
def test_bytes_that_are_not_zero_are_never_passed_over(disk: FileSystem, directory: Path) -> None:
    file = disk.create(directory / "a")
    file.append([bytes(100), b"x" * 10_000])
    assert [file.data_from(offset) for offset in (100, 5_000, 10_099)] == [100, 5_000, 10_099]
    assert file.data_from(0) <= 100
    assert file.data_from(10_100) >= 10_100
    file.close()


def test_names_and_sizes_are_listed(disk: FileSystem, directory: Path) -> None:
    disk.create(directory / "a").append([b"123"])
    disk.create(directory / "b")
    assert disk.list(directory) == {"a": 3, "b": 0}
    disk.rename(directory / "a", directory / "b")
    assert disk.list(directory) == {"b": 3}
    disk.create(directory / "b")
    assert disk.list(directory) == {"b": 0}
    disk.remove(directory / "b")
    disk.remove(directory / "b")
    sync_directory(disk, directory)
    assert disk.list(directory) == {}
    assert disk.free_bytes(directory) > 0


def test_removed_file_stays_readable_through_an_open_descriptor(disk: FileSystem, directory: Path) -> None:
    disk.create(directory / "a").append([b"still here"])
    reader = disk.open(directory / "a")
    disk.remove(directory / "a")
    assert reader.read(5, 0) == b"still"


def test_small_file_is_replaced_atomically(disk: FileSystem, directory: Path) -> None:
    write_durably(disk, directory / "a", [b"first"])
    write_durably(disk, directory / "a", (part for part in (b"sec", b"ond")))
    assert content(disk, directory / "a") == b"second"
    assert list(disk.list(directory)) == ["a"]


def test_files_are_for_their_owner_alone(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    fill(log, 1)
    log.close()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_links_are_not_followed(directory: Path, tmp_path: Path) -> None:
    disk = PosixFileSystem()
    disk.make_directory(directory)
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (directory / "a").symlink_to(tmp_path / "elsewhere")
    for act in (disk.open, disk.create):
        with pytest.raises(OSError, match="symbolic link"):
            act(directory / "a")
    assert disk.list(directory) == {}
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Limit the size of files, as the system does it: a short write, then EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_short_write_of_the_real_disk_leaves_whole_batches(open_log: OpenLog, directory: Path) -> None:
    """Reported as `disk_low`, cut back, and writing resumes as soon as there is room."""
    log = open_log()
    stored = fill(log, 3, size=1_000)
    size = log.info().bytes
    with no_file_larger_than(size + 500):
        with pytest.raises(Unavailable, match="disk_low"):
            log.append(bytes(1_000))
        assert list(log.read()) == stored
        (segment,) = directory.glob("*.seg")
        assert segment.stat().st_size == size
        stored += fill(log, 1, size=10)
    stored += fill(log, 2, size=1_000)
    log.close()
    assert list(open_log().read()) == stored
