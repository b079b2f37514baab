"""A benchmark that is ended leaves no process, no directory and no topic."""

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
from kit.machine.screens import Screen


def measuring(alone: Command, tmp_path: Path) -> tuple[Running, list[int]]:
    """`quoth bench ratio` while it measures, and the processes that it has started."""
    running = alone.start("bench", "ratio", "--pairs", "100", "--figure", "write 100", "--dir", str(tmp_path))
    eventually(
        lambda: any(path.stat().st_size for path in tmp_path.glob("*/written")),
        "the bare loop was written to",
    )
    appears(tmp_path, "*/data/topics/*/*.seg", "the broker was written to")
    started = children(running.process.pid)
    assert len(started) >= 3, "the broker, a client, and the bare loop"
    return running, started


@needs_proc
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_signal_ends_all_processes(alone: Command, tmp_path: Path, number: int, status: int) -> None:
    """SIGTERM removes the directory, too; a client whose parent was killed may report that."""
    running, started = measuring(alone, tmp_path)
    ended = running.end(number)
    assert ended.status == status
    assert number == signal.SIGKILL or not ended.err
    eventually(lambda: not [pid for pid in started if runs(pid)], "all of its processes end")
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())


def test_interrupt_deletes_the_topics_of_the_benchmark(alone: Command, broker: BrokerProcess) -> None:
    with quoth.connect(broker.url) as client:
        client.publish("mine", b"kept")
        typed = "bench table --work write --topics 2 --clients 2 --seconds 60 --url"
        running = alone.start(*typed.split(), broker.url)
        topics = eventually(
            lambda: [name for name in client.topics() if name.startswith("bench-")], "it made topics"
        )
        eventually(lambda: client.topic(topics[0]).count, "its clients write")
        assert running.end(signal.SIGINT).status == 130
        assert client.topics() == ["mine"]


def test_terminal_shows_progress(alone: Command, broker: BrokerProcess) -> None:
    typed = "bench table --work read --topics 1 --clients 1 --seconds 50ms --format json --url"
    screen = Screen(24, 80)
    ended = screen.show_errors(alone, *typed.split(), broker.url)
    assert ended.status == 0
    assert len(ended.objects) == 2
    assert "storing what is read" in screen.seen
