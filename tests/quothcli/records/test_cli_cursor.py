"""`--cursor` of `quoth tail` and `quoth read`: written records are done, and no others."""

from __future__ import annotations

import json
import os
import random
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker.peers import refused
from kit.deadlines import eventually, pause
from kit.machine.commands import Command
from kit.machine.processes import drained, unread
from kit.scale import times
from quoth import Cursor

Fill = Callable[..., list[int]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The cursor's file."""
    return tmp_path / "orders.cursor"


def after(path: Path, topic: str) -> int | None:
    """Return the pointer of the cursor."""
    with Cursor(path) as cursor:
        return cursor.after(topic)


def test_each_run_goes_on_behind_the_one_before(quoth: Command, topic: str, fill: Fill, path: Path) -> None:
    stamps = fill(b"1", b"2", b"3", b"4")
    with_cursor = (topic, "--cursor", str(path), "--format", "raw")
    assert quoth("tail", *with_cursor, "--after", "0", "--limit", "2").out == b"1\n2\n"
    assert after(path, topic) == stamps[1]
    assert quoth("read", *with_cursor, "--limit", "1").out == b"3\n"
    assert quoth("read", *with_cursor).out == b"4\n"
    assert quoth("read", *with_cursor) == (0, b"", "")
    fill(b"5")
    assert quoth("tail", *with_cursor, "--limit", "1").out == b"5\n"


def test_typed_beginning_counts_for_a_new_file_only(
    quoth: Command, topic: str, fill: Fill, path: Path
) -> None:
    """The same line may stand in a unit that is started many times."""
    fill(b"1", b"2")
    for beginning in (("--since", "-1h"), ("-n", "2")):
        line = ("tail", topic, *beginning, "--cursor", str(path), "--limit", "1", "--format", "raw")
        assert quoth(*line) == (0, b"1\n", "")
        said = f"{path} says where to go on; -n, --after and --since say where a new file begins"
        assert quoth(*line) == (0, b"2\n", f"quoth: {said}\n")
        path.unlink()


def test_killed_tail_without_records_goes_on_where_it_began(
    quoth: Command, topic: str, fill: Fill, path: Path
) -> None:
    (old,) = fill(b"old")
    tail = quoth.start("tail", topic, "--cursor", str(path))
    eventually(path.exists, "it has begun")
    assert tail.end(signal.SIGKILL).status == -signal.SIGKILL
    assert after(path, topic) == old


def test_ended_tail_has_saved_its_cursor(quoth: Command, topic: str, fill: Fill, path: Path) -> None:
    for number, status in ((signal.SIGINT, 0), (signal.SIGTERM, 143), (None, 0)):
        (pointer,) = fill(b"new")
        path.unlink(missing_ok=True)
        tail = quoth.start("tail", topic, "-n", "1", "--cursor", str(path), "--format", "raw")
        assert tail.line() == "new"
        if number is None:
            tail.close_output()  # its reader ends while there is nothing to print
        assert tail.end(number) == (status, b"", "")
        assert after(path, topic) == pointer


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, {143}), (signal.SIGINT, {0, 130})], ids=["SIGTERM", "SIGINT"]
)
@pytest.mark.parametrize("command", ["tail --after 0", "read"])
def test_signal_ends_it_while_the_reader_takes_nothing(
    quoth: Command,
    topic: str,
    fill: Fill,
    path: Path,
    command: str,
    number: signal.Signals,
    status: set[int],
) -> None:
    fill(*(b"%05d" % row + b"x" * 300 for row in range(3_000)))
    name, *options = command.split()
    line = (name, topic, *options, "--cursor", str(path), "--format", "raw")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as out, os.fdopen(writing, "wb") as end:
        running = quoth.start(*line, stdout=end)
        eventually(lambda: not select.select([], [end], [], 0)[1], "the pipe is full")
        assert running.end(number).status in status
        end.close()
        printed = out.read().splitlines()
    assert [int(row[:5]) for row in printed] == list(range(len(printed)))
    assert int(quoth(*line, "--limit", "1").out[:5]) == len(printed), "it goes on behind what was written"


@pytest.mark.parametrize("command", ["tail --after 0", "read"])
def test_cursor_stands_behind_the_last_record_in_the_pipe_of_a_reader_that_ended(
    quoth: Command, topic: str, fill: Fill, path: Path, command: str
) -> None:
    """As in `quoth tail orders --cursor FILE | head -5`, with a full pipe."""
    values = [b"%05d" % number + b"x" * 300 for number in range(3_000)]
    fill(*values)
    reading, writing = os.pipe()
    name, *options = command.split()
    running = quoth.start(name, topic, *options, "--cursor", str(path), "--format", "raw", stdout=writing)
    os.close(writing)
    eventually(lambda: unread(reading) > 2**15, "the pipe fills")
    taken = os.read(reading, 5_000)
    eventually(lambda: unread(reading) > 2**15, "it fills again")
    os.kill(running.process.pid, signal.SIGSTOP)
    running.wait_until_stopped()
    taken += drained(reading)
    os.close(reading)
    os.kill(running.process.pid, signal.SIGCONT)
    ended = running.end()
    assert (ended.status, ended.err) == (0, "")
    assert taken.endswith(b"\n"), "the pipe took a part of a line"
    written = taken.count(b"\n")
    assert 0 < written < len(values)
    assert quoth("read", topic, "--cursor", str(path), "--format", "raw").out.split() == values[written:]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_records_that_could_not_be_written_are_not_done(
    quoth: Command, topic: str, fill: Fill, path: Path
) -> None:
    fill(b"1", b"2")
    for command in ("tail --after 0 --limit 2", "read"):
        name, *options = command.split()
        with open("/dev/full", "wb") as full:
            ended = quoth.start(name, topic, *options, "--cursor", str(path), stdout=full).end()
        assert (ended.status, len(ended.err.splitlines())) == (1, 2), ended.err
    assert quoth("read", topic, "--cursor", str(path), "--format", "raw").out == b"1\n2\n"


def test_kills_at_any_time_skip_no_record(
    quoth: Command, topic: str, fill: Fill, path: Path, rng: random.Random
) -> None:
    """Only records that a run has written and not saved come again in the next one, in order."""
    values = [b"%06d" % number for number in range(60_000)]
    fill(*values)
    runs: list[list[bytes]] = []
    for _ in range(times(5, 40)):
        out = path.with_name("out")
        with out.open("wb") as file:
            running = quoth.start(
                "tail", topic, "--since", "-1h", "--cursor", str(path), "--format", "raw", stdout=file
            )
            seen = runs[-1][-1] if runs else b""
            eventually(lambda: out.stat().st_size or seen == values[-1], "it writes")  # noqa: B023
            pause(rng.uniform(0, 0.05))
            os.kill(running.process.pid, signal.SIGKILL)
            running.process.wait()
        lines = out.read_bytes().split(b"\n")[:-1]
        if lines:
            runs.append(lines)
    out_of_all = [*runs, quoth("read", topic, "--cursor", str(path), "--format", "raw").out.split()]
    end = 0
    for lines in filter(None, out_of_all):
        start = int(lines[0])
        assert start <= end, "some were left out"
        assert lines == values[start : start + len(lines)]
        end = max(end, start + len(lines))
    assert end == len(values)


def test_file_that_is_no_cursor_is_refused_and_stays(
    quoth: Command, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(b"1")
    damaged = tmp_path / "damaged"
    damaged.write_text("1795336996547604")
    newer = tmp_path / "newer"
    newer.write_text(json.dumps({"cursor": 99, "topics": {}}))
    for name, code, status in [
        (damaged, "damaged", 1),
        (newer, "unsupported_version", 1),
        (tmp_path, "bad_request", 2),
        (tmp_path / "nowhere" / "file", "not_found", 3),
    ]:
        content = name.read_bytes() if name.is_file() else b""
        happened, _ = quoth("read", topic, "--cursor", str(name)).refused(status)
        assert happened.startswith(f"quoth: {code}: {name}")
        assert (name.read_bytes() if name.is_file() else b"") == content


def test_second_program_on_a_cursor_is_refused_until_the_first_one_is_killed(
    quoth: Command, topic: str, fill: Fill, path: Path
) -> None:
    fill(b"1")
    tail = quoth.start("tail", topic, "--after", "0", "--cursor", str(path), "--format", "raw")
    assert tail.line() == "1"
    with refused("locked"):
        Cursor(path)
    told = quoth("read", topic, "--cursor", str(path))
    assert (told.status, told.out) == (1, b"")
    assert told.err.startswith(f"quoth: locked: {path} is in use by process {tail.process.pid}\n")
    assert tail.end(signal.SIGKILL).status == -signal.SIGKILL
    assert quoth("read", topic, "--cursor", str(path)).status == 0
