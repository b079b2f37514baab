"""A writer gathers records and has them on the disk in time: after so many, after so long, when asked."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kit.broker.peers import refused
from kit.clocks import HOUR, ManualClock
from kit.deadlines import eventually, hold
from kit.disk.logs import fill, segments
from kit.disk.small_disks import mounted
from quothlog import Log, LogOptions, Reader, Writer
from quothlog.file_format import segment_name
from quothlog.reading.forwarding_progress import read_mark, trim_unowned, write_mark
from quothlog.storage.filesystem import PosixFileSystem
from quothlog.writer import OWNER_S
from quothwire.errors import QuothError
from quothwire.record import BUFFER_BYTES_MAX

LATE = 3_600.0
FAR = 1_999_999_999_999_999
"""A pointer of the year 2033."""

PROGRAM = """
import sys
from quothlog import Writer
writer = Writer(sys.argv[1], flush_records=10, flush_seconds=3600)
for number in range(1_000_000):
    writer.write(b"%d" % number)
    if number % 10 == 9:
        print(number, flush=True)
"""


def stored(directory: Path) -> list[bytes]:
    with Reader(directory) as reader:
        return [record.value for record in reader]


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Nothing can be opened meanwhile."""
    with contextlib.ExitStack() as stack:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.suppress(OSError):
            while True:
                stack.enter_context(Path(os.devnull).open("rb"))
        yield


def holds(directory: Path, count: int) -> bool:
    return len(stored(directory)) == count


def test_writer_flushes_after_a_number_of_records_as_one_batch(directory: Path) -> None:
    with Writer(directory, flush_records=3, flush_seconds=LATE) as writer:
        for number in range(7):
            writer.write(b"%d" % number, key=b"k", headers={"n": b"%d" % number})
            assert len(stored(directory)) == (number + 1) // 3 * 3
        assert writer.log.unsynced_records == 0
        assert writer.flush() == writer.log.newest
        assert len(stored(directory)) == 7
    with Log.open(directory) as log:
        assert [(one.value, one.key, dict(one.headers)) for one in log.read()] == [
            (b"%d" % number, b"k", {"n": b"%d" % number}) for number in range(7)
        ]


def test_writer_flushes_after_its_interval_without_a_call(directory: Path) -> None:
    with Writer(directory, flush_records=1_000, flush_seconds=0.02) as writer:
        for number in range(3):
            writer.write(b"%d" % number)
            eventually(partial(holds, directory, number + 1), "the record is written")
            eventually(lambda: writer.log.unsynced_records == 0, "and synced")


def test_writer_flushes_nothing_before_its_interval(directory: Path) -> None:
    writer = Writer(directory, flush_seconds=LATE)
    writer.write(b"x")
    hold(lambda: stored(directory) == [], "nothing is written before its time", 0.05)
    writer.close()
    writer.close()
    assert stored(directory) == [b"x"]
    with pytest.raises(QuothError, match="closed"):
        writer.write(b"y")


def test_records_of_each_writing_thread_keep_their_order(directory: Path) -> None:
    with Writer(directory, flush_records=7, flush_seconds=0.001) as writer:

        def write(name: int) -> None:
            for number in range(500):
                writer.write(b"%d %d" % (name, number))

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [tuple(map(int, value.split())) for value in stored(directory)]
    assert len(found) == 2_000
    for name in range(4):
        assert [number for one, number in found if one == name] == list(range(500))


def test_killed_writer_loses_at_most_unflushed_records(directory: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(directory)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(50):
            printed = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        for line in process.stdout:
            printed = int(line)
    found = stored(directory)
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) > printed


@pytest.mark.parametrize(
    ("value", "key", "code"),
    [
        ("text", None, "bad_request"),
        (b"x", "text", "bad_request"),
        (bytes(BUFFER_BYTES_MAX), None, "too_large"),
    ],
    ids=["value", "key", "size"],
)
def test_invalid_record_is_refused_alone(directory: Path, value: Any, key: Any, code: str) -> None:
    with Writer(directory, flush_seconds=LATE) as writer:
        writer.write(b"before")
        with refused(code):
            writer.write(value, key=key)
        writer.write(b"after")
    assert stored(directory) == [b"before", b"after"]


def test_large_records_are_batches_of_their_own(directory: Path) -> None:
    large = [bytes([number]) * (BUFFER_BYTES_MAX - 64) for number in range(2)]
    with Writer(directory, flush_seconds=LATE) as writer:
        for value in (b"a", large[0], b"b", large[1], b"c"):
            writer.write(value)
    assert stored(directory) == [b"a", large[0], b"b", large[1], b"c"]


def test_on_a_full_disk_records_stay_buffered_and_none_is_lost(directory: Path) -> None:
    """As many as fit into one batch; then writing is refused, until there is room."""
    writer = Writer(directory, flush_records=10, flush_seconds=LATE)
    writer.write(b"first")
    writer.flush()
    options, writer.log.options = writer.log.options, LogOptions(disk_free_min=2**62)
    value = bytes(2**20)
    taken = count()
    with pytest.raises(QuothError) as raised:  # noqa: PT012
        while True:
            writer.write(value)
            next(taken)
    assert raised.value.code == "disk_low"
    assert writer.problem is raised.value
    assert next(taken) == BUFFER_BYTES_MAX // (len(value) + 16)
    with pytest.raises(QuothError, match="disk_low"):
        writer.flush()
    writer.log.options = options
    writer.flush()
    assert writer.problem is None
    writer.write(b"last")
    writer.close()
    assert stored(directory) == [b"first", *[value] * (next(taken) - 1), b"last"]


def test_on_a_full_disk_forwarded_segments_are_removed(tmp_path: Path) -> None:
    """Though the mark finds none either: it is written over the old one."""
    with mounted("tmpfs", tmp_path, 4 * 2**20) as disk:
        log = disk.path / "log"
        with Writer(log, flush_seconds=LATE, options=LogOptions(size_limit=2**17)) as writer:
            write_mark(log / "a.forward", {"pointer": 0, "trim": True})
            taken = 0
            with pytest.raises(QuothError, match="disk_low"):  # noqa: PT012
                while True:
                    writer.write(b"%d" % taken + bytes(50_000))
                    taken += 1
                    writer.flush()
            disk.fill()
            with Reader(log) as reader:
                records = list(reader)
            assert len(records) < taken
            write_mark(log / "a.forward", {"pointer": records[-1].pointer, "trim": True})
            assert not list(log.glob("*.tmp"))
            writer.flush()
            left = stored(log)
            assert [int(value.rstrip(b"\0")) for value in left] == list(range(taken - len(left), taken))
            assert len(left) < len(records)


def test_writer_flushes_on_time_without_free_descriptors(directory: Path) -> None:
    with Writer(directory, flush_seconds=0.02) as writer:
        with no_more_descriptors():
            for number in range(1, 4):
                writer.write(b"%d" % number)
                eventually(lambda: writer.log.end_ordinal == number, "the record is written")  # noqa: B023
        writer.write(b"4")
        eventually(partial(holds, directory, 4), "and the next one, too")


@pytest.mark.parametrize("wrong", [{"flush_records": 0}, {"flush_seconds": 0}, {"flush_records": 100_001}])
def test_invalid_writer_settings_are_refused(directory: Path, wrong: dict[str, Any]) -> None:
    with refused("bad_setting"):
        Writer(directory, **wrong)


def test_second_writer_is_refused_with_the_pid_of_the_first(directory: Path) -> None:
    """After it has waited for the first one to end."""
    clock = ManualClock()
    with Writer(directory):
        began = clock.monotonic()
        with pytest.raises(QuothError, match=f"in use by process {os.getpid()}"):
            Writer(directory, clock=clock)
        assert OWNER_S <= clock.monotonic() - began < OWNER_S + 0.1


def test_writer_removes_segments_below_every_forwarding_mark(directory: Path) -> None:
    """Once one asks for it, and up to where the last of them is."""
    with Writer(directory, flush_records=1, options=LogOptions(count_limit=5)) as writer:
        for number in range(30):
            writer.write(b"%d" % number)
        pointers = [record.pointer for record in writer.log.read()]
        write_mark(directory / "one.forward", {"pointer": pointers[17], "trim": False})
        writer.flush()
        assert stored(directory)[0] == b"0"
        write_mark(directory / "other.forward", {"pointer": pointers[22], "trim": True})
        writer.flush()
        assert stored(directory)[0] == b"15"
        (directory / "one.forward").write_text("nonsense")
        write_mark(directory / "other.forward", {"pointer": pointers[29], "trim": True})
        writer.flush()
        assert stored(directory)[0] == b"15"
        (directory / "one.forward").unlink()
        writer.flush()
        assert stored(directory) == []
        assert len(segments(directory)) == 1
        writer.write(b"30")
    with Log.open(directory) as log:
        assert [record.value for record in log.read()] == [b"30"]
        assert log.findings.unknown_files == []


def test_mark_is_written_while_a_writer_opens_the_log(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its forwarder does not hold the log's lock. The opening removes unfinished files of the log itself."""
    rename = PosixFileSystem.rename

    def open_before(filesystem: PosixFileSystem, old: Path, new: Path) -> None:
        Writer(directory).close()
        rename(filesystem, old, new)

    Writer(directory).close()
    left = directory / f"{segments(directory)[0].name}.tmp"
    left.write_bytes(b"unfinished")
    monkeypatch.setattr(PosixFileSystem, "rename", open_before)
    write_mark(directory / "a.forward", {"pointer": 7, "trim": True})
    mark = read_mark(directory / "a.forward")
    assert mark is not None
    assert mark["pointer"] == 7
    assert not left.exists()


def test_log_without_an_owner_is_trimmed_up_to_its_forwarding_marks(directory: Path) -> None:
    """And of nothing else, though a copy of a segment seems to be where the next one begins."""
    with Log.open(directory, options=LogOptions(count_limit=5)) as log:
        for number in range(13):
            log.append(b"%d" % number)
        pointers = [record.pointer for record in log.read()]
    shutil.copy(segments(directory)[-1], directory / segment_name(pointers[7]))
    kept = {4: 0, 8: 5, 9: 10, 12: 10}
    write_mark(directory / "a.forward", {"pointer": pointers[12], "trim": False})
    assert trim_unowned(directory) == 0
    for safe, first in kept.items():
        write_mark(directory / "a.forward", {"pointer": pointers[safe], "trim": True})
        trim_unowned(directory)
        assert stored(directory) == [b"%d" % number for number in range(first or 5, 13)]


def test_an_opening_warns_of_pointers_ahead_of_the_clock_and_of_false_segments(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Log.open(directory, clock=ManualClock(time.time_ns() // 1_000 + HOUR, tick=1)) as log:
        fill(log, 1)
    (directory / segment_name(FAR)).touch()
    with Writer(directory):
        pass
    ahead, false_segment = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(r".*: pointers run 3[56]\d\d s ahead of the clock", ahead)
    assert f"no segment of this log, kept as {segment_name(FAR)}" in false_segment


def test_each_record_that_was_taken_before_a_close_is_stored_once(directory: Path) -> None:
    """Threads write until they are refused, and the batches between them are small."""
    writer = Writer(directory, flush_records=5, flush_seconds=0.001)
    taken: list[list[bytes]] = [[] for _ in range(4)]
    started = threading.Barrier(5)

    def write(name: int) -> None:
        started.wait()
        with contextlib.suppress(QuothError):
            for number in count():
                value = b"%d %d" % (name, number)
                writer.write(value)
                taken[name].append(value)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    eventually(lambda: writer.log.end_ordinal > 1_000, "some records are stored")
    writer.close()
    for thread in threads:
        thread.join()
    found = stored(directory)
    assert sorted(found) == sorted(value for values in taken for value in values)
    for name, values in enumerate(taken):
        assert [value for value in found if value.startswith(b"%d " % name)] == values


def test_batches_after_the_first_one_are_flushed_in_time_too(directory: Path) -> None:
    """The thread is awake for the first one, and has nothing to wait for in between."""
    with Writer(directory, flush_records=3, flush_seconds=0.02) as writer:
        for number in range(3):
            for _ in range(4):
                writer.write(b"x")
            eventually(partial(holds, directory, 4 * number + 4), "the fourth one comes in time")


def test_a_log_that_failed_takes_no_records(directory: Path) -> None:
    writer = Writer(directory, flush_records=2, flush_seconds=LATE)
    writer.write(b"taken")
    failing = writer.log.appender.write_failure
    failing.fail(OSError(5, "Input/output error"))
    with pytest.raises(QuothError, match="storage_failed"):
        writer.flush()
    with pytest.raises(QuothError, match="storage_failed"):
        writer.write(b"refused")
    with contextlib.suppress(QuothError):
        writer.close()
    assert stored(directory) == []
