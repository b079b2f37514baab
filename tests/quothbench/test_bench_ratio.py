"""`quoth bench ratio`: the bare loop and the broker in turn, and what is left when it is ended."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import appears, eventually
from kit.machine.commands import Command, Running
from kit.machine.processes import children, needs_proc, runs
from quothbench.instruments.ratio import FIGURES
from quothbench.load import driver
from quothwire import batch
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched

SMALL = ("--pairs", "1", "--figure", "publish", "--figure", "read 1 MB, s")
EXPECTED = [
    ("read 1 MB, sealed", "calls/s", 0.90, 0.97),
    ("publish of 1 x 100 B, p50", "us", 2.0, 1.5),
]


def test_the_rows_that_are_asked_for(alone: Command, tmp_path: Path) -> None:
    told = alone("bench", "ratio", *SMALL, "--dir", str(tmp_path), "--format", "json")
    assert (told.status, told.err) == (0, "")
    conditions, *rows = told.objects
    assert (conditions["benchmark"], conditions["durability"], conditions["pairs"]) == ("ratio", "written", 1)
    assert [(row["figure"], row["unit"], row["required"], row["aim"]) for row in rows] == EXPECTED
    for row in rows:
        bare, quoth, ratio = (row[name]["median"] for name in ("bare", "quoth", "ratio"))
        assert bare > 0
        assert ratio == pytest.approx(quoth / bare)
        assert 0.01 < ratio < 100
    assert not list(tmp_path.iterdir())


def test_writes_as_text(alone: Command, tmp_path: Path) -> None:
    chosen = ("--pairs", "1", "--figure", "write 100")
    told = alone("bench", "ratio", *chosen, "--dir", str(tmp_path))
    assert (told.status, told.err) == (0, "")
    heading, calls, *rest = told.lines[told.lines.index("") + 1 :]
    assert heading.split() == ["figure", "unit", "bare", "quoth", "ratio", "required", "aim"]
    assert calls.startswith("write 100 x 100 B ")
    assert calls.split()[5] == "calls/s"
    assert calls.split()[-2:] == ["0.70", "0.85"]
    if sys.platform == "linux":
        (costs,) = rest
        assert costs.split()[:4] == ["processor", "a", "call", "us"]


def test_a_figure_that_does_not_exist_is_told_with_those_that_do(alone: Command) -> None:
    told = alone("bench", "ratio", "--figure", "write", "--figure", "Read")
    assert (told.status, told.out) == (2, b"")
    assert "--figure" in told.err
    assert "'Read'" in told.err
    assert all(name in told.err for name in FIGURES)
    assert len(told.err.splitlines()) == 2


def measuring(alone: Command, tmp_path: Path) -> tuple[Running, list[int]]:
    """The benchmark while it measures, and the processes that it has started."""
    chosen = ("--pairs", "100", "--figure", "write 100")
    running = alone.start("bench", "ratio", *chosen, "--dir", str(tmp_path))
    eventually(
        lambda: any(path.stat().st_size for path in tmp_path.glob("*/written")),
        "the bare loop was written to",
    )
    appears(tmp_path, "*/data/topics/*/*.seg", "the broker was written to")
    started = children(running.process.pid)
    assert len(started) >= 3, "the broker, a client, and the bare loop"
    return running, started


@needs_proc
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ended_it_leaves_no_process_and_no_directory(
    alone: Command, tmp_path: Path, number: int, status: int
) -> None:
    running, started = measuring(alone, tmp_path)
    ended = running.end(number)
    assert ended.status == status
    assert ended.err == ""
    eventually(lambda: not [pid for pid in started if runs(pid)], "all of its processes end")
    assert not list(tmp_path.iterdir())


@needs_proc
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_killed_it_leaves_no_process(alone: Command, tmp_path: Path) -> None:
    running, started = measuring(alone, tmp_path)
    running.process.kill()
    eventually(lambda: not [pid for pid in started if runs(pid)], "all of its processes end")


# -- its parts ------------------------------------------------------------------------------------


def test_reads_say_what_they_expect(broker: BrokerProcess, topic: str) -> None:
    """A wrong ordinal is told as records that are gone, so a right one was understood."""
    with quoth.connect(broker.url) as client, driver.dealer(broker.url) as socket:
        lasts = [client.publish(topic, [b"x"] * 5).last for _ in range(3)]
        gone = []
        for frames in driver.fetches(topic, [0, lasts[0], lasts[1]], 5, 1, [0, 5, 7]):
            socket.send_multipart(frames)
            answer = binary_codec.decode_answer(socket.recv_multipart()[1:])
            assert isinstance(answer.reply, Fetched)
            assert batch.check(answer.payload, answer.reply.log).last in lasts
            gone.append(answer.reply.gone)
        assert gone == [0, 0, 3]
