"""The example of a channel: between threads of one program, again after it has ended, or was killed."""

from __future__ import annotations

import queue
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest

from kit.deadlines import eventually
from kit.scale import times
from quothwire.errors import QuothError

EXAMPLE = Path(__file__).parents[3] / "client" / "examples" / "channel.py"

PROGRAM = """
import os, sys, threading
example, directory, got, run = sys.argv[1:]
sys.path.insert(0, os.path.dirname(example))
from channel import Channel

def take(channel, got):
    for value in channel:
        os.write(got, value + b"\\n")

with Channel(directory, file_bytes=2**14) as channel:
    got = os.open(got, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    threading.Thread(target=take, args=(channel, got), daemon=True).start()
    for number in range(1_000_000):
        channel.put(b"%d %d" % (int(run), number))
        if number % 50 == 49:
            channel.flush()
            print(number, flush=True)
"""
"""Puts numbers and prints up to which they are safe; another thread adds to a file what it gets."""


@pytest.fixture
def opened(load_example: Callable[[str], Any], tmp_path: Path) -> Callable[..., Any]:
    """Open a channel of the example, always in the same directory."""
    example = load_example("channel.py")
    return lambda **options: example.Channel(tmp_path / "channel", **options)


def test_threads_get_what_others_put_in_order_until_the_channel_is_closed(opened: Callable[..., Any]) -> None:
    count, names = 2_000, (b"a", b"b")
    found: list[bytes] = []
    with opened() as channel:
        getter = Thread(target=lambda: found.extend(channel))
        putters = [
            Thread(target=lambda name=name: [channel.put(name + b" %d" % row) for row in range(count)])
            for name in names
        ]
        for thread in (getter, *putters):
            thread.start()
        for thread in putters:
            thread.join()
        channel.close()
        getter.join()
        with pytest.raises(EOFError):
            channel.get()
        with pytest.raises(QuothError, match="closed"):
            channel.put(b"more")
    for name in names:
        assert [one for one in found if one.startswith(name)] == [name + b" %d" % row for row in range(count)]
    assert len(found) == count * len(names)


def test_get_waits_as_long_as_it_may(opened: Callable[..., Any]) -> None:
    with opened() as channel:
        began = time.monotonic()
        with pytest.raises(queue.Empty):
            channel.get(timeout=0.15)
        assert time.monotonic() - began >= 0.15
        later = Timer(0.05, channel.put, [b"one"])
        later.start()
        assert channel.get() == b"one"
        later.join()


def test_values_that_were_not_done_come_again_the_next_time_and_no_others(opened: Callable[..., Any]) -> None:
    with opened() as channel:
        for number in range(10):
            channel.put(b"%d" % number)
    with opened() as channel:
        assert [channel.get() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        channel.done()
        assert channel.get() == b"4"
        channel.put(b"10")
    with opened() as channel:
        for value in channel:
            if value == b"7":
                break  # it is not done
    with opened() as channel:
        channel.close()
        assert [*channel] == [b"7", b"8", b"9", b"10"]
    with opened() as channel:
        with pytest.raises(queue.Empty):
            channel.get(timeout=0)
        channel.close()
        with pytest.raises(QuothError, match="closed"):
            channel.put(b"more")


def test_one_process_at_a_time_has_each_end(opened: Callable[..., Any]) -> None:
    with opened() as channel, opened() as other:
        channel.put(b"one")
        assert other.get() == b"one"
        with pytest.raises(QuothError, match="in use"):
            channel.get(timeout=0)
        with pytest.raises(QuothError, match="in use"):
            other.put(b"two")


def test_what_was_taken_leaves_the_disk(opened: Callable[..., Any], tmp_path: Path) -> None:
    """In the long run there are a few files, though forty times as much was put."""
    most, file_bytes = 0, 2**14
    with opened(file_bytes=file_bytes) as channel:
        for _ in range(40):
            for _ in range(10):
                channel.put(bytes(1_600))
            channel.flush()
            for _ in range(10):
                channel.get(timeout=10)
            channel.done()
            channel._save()
            most = max(most, _size(tmp_path / "channel"))
    assert most < 6 * file_bytes
    assert _size(tmp_path / "channel") < file_bytes, "all of it was taken"


def test_killed_threads_lose_nothing_that_was_flushed_and_repeat_the_last_values_only(
    opened: Callable[..., Any], tmp_path: Path, rng: random.Random
) -> None:
    got = tmp_path / "got"
    safe: list[int] = []
    begins = [0]
    for run in range(times(4, 60)):
        command = sys.executable, "-W", "error", "-c", PROGRAM, EXAMPLE, tmp_path / "channel", got, str(run)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            printed = [process.stdout.readline() for _ in range(rng.randint(1, 20))]
            eventually(lambda: len(_lines(got)) > begins[-1], "values come")
            process.kill()
            printed += process.stdout.readlines()
        safe.append(int(printed[-1]))
        begins.append(len(_lines(got)))
    with opened() as channel, got.open("ab") as file:
        channel.close()
        file.writelines(value + b"\n" for value in channel)
    found = _lines(got)
    goes_on = [
        row == 0 or one in (_next(found[row - 1]), (found[row - 1][0] + 1, 0))
        for row, one in enumerate(found)
    ]
    assert {row for row, right in enumerate(goes_on) if not right} <= {*begins}, "a value was left out"
    for one, other in pairwise(begins):
        if other - one > 2:  # the first value of a process is done, and saved, before its third one comes
            assert found[other] > found[one]
    for run, number in enumerate(safe):
        of_run = {other for one, other in found if one == run}
        assert of_run == {*range(len(of_run))}
        assert number in of_run


def _lines(path: Path) -> list[tuple[int, int]]:
    """Return the runs and numbers in a file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [(int(run), int(number)) for run, number in map(bytes.split, lines)]


def _next(one: tuple[int, int]) -> tuple[int, int]:
    return one[0], one[1] + 1


def _size(directory: Path) -> int:
    """Count the bytes of the files in a directory, which may vanish meanwhile."""
    size = 0
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size
