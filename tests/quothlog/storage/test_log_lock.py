"""One process owns a directory, and nothing has to be cleaned up after it."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, fill, segments, values
from kit.machine.processes import in_child, needs_proc, open_files
from quoth.filelock import FileLock
from quothlog import Log, Reader, file_format
from quothlog.reading import forwarding_progress
from quothlog.recovery import verify
from quothlog.storage.dirlock import DirectoryLock
from quothwire.errors import Conflict, QuothError

OWNER = """
import sys
from quothlog import Log
log = Log.open(sys.argv[1])
log.append(b"from another process")
print("owns it", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(program: str, at: Path) -> Iterator[int]:
    """Let another process own a directory, until it is killed; yields its id."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(at)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"owns it\n"
            yield process.pid
        finally:
            process.kill()


@needs_proc
def test_failed_opening_releases_the_lock_and_its_descriptors(open_log: OpenLog, directory: Path) -> None:
    with open_log() as log:
        fill(log, 1)
    disk = FaultyDisk()
    disk.fail("open", problem=errno.EIO, lasting=True)
    for _ in range(5):
        with pytest.raises(OSError, match="Input/output"):
            open_log(filesystem=disk)
    assert open_files(directory) == []
    assert len(values(open_log())) == 1


def test_forked_child_does_not_keep_the_lock(open_log: OpenLog, directory: Path) -> None:
    """The child lives on, the owner closes, a third one opens."""
    log = open_log()
    fill(log, 1)
    here, there = socket.socketpair()
    child = os.fork()
    if not child:
        here.close()
        there.send(b"lives")
        there.recv(1)
        os._exit(0)
    there.close()
    with here:
        assert here.recv(5) == b"lives"
        log.close()
        assert len(values(open_log())) == 1
    os.waitpid(child, 0)


def test_forked_child_cannot_write_into_its_parents_log(log: Log, directory: Path) -> None:
    stored = fill(log, 2)

    def write() -> None:
        log.append(b"from a child")

    assert f"process {os.getpid()}" in in_child(lambda: Log.open(directory))
    assert in_child(write).startswith("closed: ")
    assert in_child(log.roll).startswith("closed: ")
    assert in_child(log.close) == "None"
    assert in_child(lambda: len(list(log.read()))) == "2"
    stored += fill(log, 1)
    assert list(log.read()) == stored
    with pytest.raises(Conflict):
        Log.open(directory)


def test_programs_started_by_the_owner_do_not_keep_the_lock(open_log: OpenLog) -> None:
    """Once they run: until then Linux closes one descriptor after the other."""
    log = open_log()
    command = [sys.executable, "-c", "print(flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, close_fds=False) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        log.close()
        open_log().close()
        other.communicate(b"\n")


def test_a_deleted_lock_file_admits_no_second_owner(open_log: OpenLog, directory: Path) -> None:
    """The directory itself is locked, too; a killed owner leaves nothing to clean up, and what it wrote."""
    with running(OWNER, directory) as pid:
        with pytest.raises(Conflict, match=f"locked: .* process {pid}"):
            Log.open(directory)
        (directory / "lock").unlink()
        for _ in range(2):
            with pytest.raises(Conflict, match="locked"):
                Log.open(directory)
    assert values(open_log()) == [b"from another process"]


def test_program_that_locks_the_file_itself_excludes_others(open_log: OpenLog, directory: Path) -> None:
    """Version 1 says what is locked: the file. So an older program and this one exclude each other."""
    open_log().close()
    with (directory / "lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Conflict):
            Log.open(directory)
    log = open_log()
    with (directory / "lock").open("r+") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    log.close()


def test_error_names_the_owner_alone_whose_id_is_written_over_a_longer_one(
    open_log: OpenLog, directory: Path
) -> None:
    open_log().close()
    with (directory / "lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("77\n4567\n")
        file.flush()
        with pytest.raises(Conflict) as problem:
            Log.open(directory)
    assert problem.value.text.endswith("is in use by process 77")
    with open_log():
        assert (directory / "lock").read_text() == f"{os.getpid()}\n"


def strange(path: Path, kind: str, target: Path) -> None:
    """Let something that is no file stand there, or nothing."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    match kind:
        case "symbolic link":
            path.symlink_to(target)
        case "FIFO":
            os.mkfifo(path)
        case "directory":
            path.mkdir()


KINDS = ("symbolic link", "FIFO", "directory")


@pytest.mark.parametrize("kind", KINDS)
def test_special_file_is_neither_read_nor_written(
    open_log: OpenLog, directory: Path, tmp_path: Path, kind: str
) -> None:
    """In place of a derived file of a log, which does without it, or of a lock file, through which nothing is
    written and for which nothing is waited."""
    target = tmp_path / "another file"
    target.write_bytes(b"of another program")
    with open_log() as log:
        stored = fill(log, 1)
    (path,) = directory.glob("*.seg")
    for name in (f"{path.stem}.idx", f"{path.name}.tmp", "x.forward"):
        strange(directory / name, kind, target)
        with open_log() as again:
            stored += fill(again, 1)
            assert forwarding_progress.released(directory) == 0
            assert list(again.read()) == stored
        strange(directory / name, "none", target)
    strange(directory / "lock", kind, target)
    strange(directory / "cursor.lock", kind, target)
    for lock in (Log.open, lambda at: FileLock(at / "cursor")):
        with pytest.raises(OSError, match="stands where a file has to be"):
            lock(directory)
    assert target.read_bytes() == b"of another program"


@pytest.mark.parametrize("kind", KINDS)
def test_special_file_named_like_a_segment_or_a_plan_is_refused(
    open_log: OpenLog, directory: Path, tmp_path: Path, kind: str
) -> None:
    """The opening and a reader without the lock raise the same error, and what proves the records stays."""
    with open_log() as log:
        stored = fill(log, 2)
        log.roll()
        stored += fill(log, 2)
    for path in (*segments(directory), directory / file_format.PLAN_NAME):
        target = tmp_path / "another file"
        if path.exists():
            path.rename(target)
        strange(path, kind, target)
        before = sorted(one.name for one in directory.iterdir())
        for look in (open_log, lambda: Reader(directory).read(), lambda: list(verify.summaries(directory))):
            with pytest.raises(QuothError, match=r"storage_failed: .* stands where a file has to be"):
                look()
        assert sorted(one.name for one in directory.iterdir()) == before
        strange(path, "none", target)
        if target.exists():
            target.rename(path)
    with open_log() as log:
        assert list(log.read()) == stored


# -- a topic's folder in a data directory -------------------------------------------------------------------

BROKER = """
import sys
from pathlib import Path
from quothlog import Log, LogOptions
from quothlog.storage.dirlock import DirectoryLock
topic = Path(sys.argv[1])
lock = DirectoryLock(topic.parents[1])
log = Log.open(topic, options=LogOptions(count_limit=1))
log.append(b"released")
log.append(b"from a broker")
print("owns it", flush=True)
sys.stdin.read()
"""
"""Owns a data directory and opens a topic in it, as a broker does."""


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """A topic's folder in a data directory."""
    topic = tmp_path / "data" / "topics" / "x"
    topic.mkdir(parents=True)
    return topic


def test_a_deleted_lock_file_of_a_topic_admits_no_second_owner_beside_its_broker(topic: Path) -> None:
    with running(BROKER, topic) as pid:
        (topic / "lock").unlink()
        with pytest.raises(Conflict, match=f"process {pid}"):
            Log.open(topic)
        forwarding_progress.write_mark(topic / "m.forward", {"pointer": 2**55, "trim": True})
        before = sorted(topic.glob("*.seg"))
        assert (len(before), forwarding_progress.trim_unowned(topic)) == (2, 0)
        assert sorted(topic.glob("*.seg")) == before
    assert forwarding_progress.trim_unowned(topic) > 0
    with Log.open(topic) as log:
        assert values(log) == [b"from a broker"]


def test_deleted_lock_file_of_a_topic_admits_no_broker(topic: Path) -> None:
    with Log.open(topic) as log:
        fill(log, 1)
        (topic / "lock").unlink()
        command = [sys.executable, "-c", BROKER, str(topic)]
        broker = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert broker.stdout == ""
        assert f"locked: {topic} is in use by process" in broker.stderr


def test_logs_in_one_data_directory_without_a_broker_do_not_exclude_each_other(topic: Path) -> None:
    with Log.open(topic) as log, Log.open(topic.with_name("y")) as other:
        assert fill(log, 1)
        assert fill(other, 1)
        lock = DirectoryLock(topic.parents[1])
        with pytest.raises(Conflict):
            Log.open(topic)
        lock.release()


def test_path_that_leads_out_of_an_owned_directory_is_not_below_it(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    lock = DirectoryLock(own)
    with Log.open(own / ".." / "other"):
        (other / "lock").unlink()
        assert "is in use by process" in in_child(lambda: Log.open(other))
    lock.release()
