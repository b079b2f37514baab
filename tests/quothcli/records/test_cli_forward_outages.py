"""`quoth forward`: every record arrives once while processes are killed and the connection is cut.

QUOTH_LONG=1 makes it many times as long; QUOTH_SEED repeats a run that failed.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.proxies import Wire
from kit.client.forwarding import count_of, stored, values
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.logs import segments
from kit.machine.commands import Command, Running
from kit.scale import times
from quoth import Client

BLOWS = 8

WRITER = """
import random, sys, time
from quothlog import LogOptions, Writer
rng = random.Random(int(sys.argv[2]))
options = LogOptions(count_limit=200)
with Writer(sys.argv[1], flush_records=20, flush_seconds=0.01, options=options) as writer:
    number = writer.log.end_ordinal
    print("ready", flush=True)
    while number < int(sys.argv[3]):
        writer.write(b"%d" % number)
        number += 1
        if rng.random() < 0.02:
            time.sleep(0.005)
    writer.flush()
    print("done", flush=True)
"""
"""Writes the ordinal of each record as its value, and goes on where the log ends."""


class Device:
    """A program that writes a log, and is killed and started again."""

    def __init__(self, log: Path, rng: random.Random, goal: int) -> None:
        self._log = log
        self._rng = rng
        self._goal = goal
        log.mkdir()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        seed = str(self._rng.randrange(2**32))
        command = [sys.executable, "-c", WRITER, str(self._log), seed, str(self._goal)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def kill(self) -> None:
        """Kill it and start it again."""
        self.close()
        self._process = self._start()

    def finish(self) -> None:
        """Wait until it has written everything."""
        self._process.communicate(timeout=DEADLINE_S)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Siege:
    """Kills a forwarder and its broker, and cuts the connection between them."""

    def __init__(
        self,
        alone: Command,
        target: BrokerProcess,
        wire: Wire,
        rng: random.Random,
        topic: str,
        *arguments: str,
    ) -> None:
        self._alone = alone
        self._topic = topic
        self._target = target
        self._wire = wire
        self._rng = rng
        self._arguments = arguments
        self.forwarder = self._forward()

    def _forward(self) -> Running:
        source, *options = self._arguments
        typed = ("forward", source, self._wire.url, "--topic", self._topic, "--timeout", "1")
        return self._alone.start(*typed, *options)

    def lay(self, blows: int, *others: Callable[[], None]) -> None:
        """Strike a number of times, at random, also in other ways."""
        for _ in range(blows):
            pause(self._rng.random() * 0.4)  # as long as it takes to start; and in the middle of work
            choice = (self.kill_forwarder, self.kill_target, self._wire.cut, self.swallow, *others)
            blow = self._rng.choice(choice)
            print(blow)
            blow()

    def kill_forwarder(self) -> None:
        """Kill the forwarder and start it again."""
        self.forwarder.end(signal.SIGKILL)
        self.forwarder = self._forward()

    def kill_target(self) -> None:
        """Kill the broker and start it again."""
        self._target.kill()
        self._target.restart()

    def swallow(self) -> None:
        """Lose the answers of the broker for a while, then cut the connection."""
        self._wire.turn_deaf()
        pause(self._rng.random() * 0.2)
        self._wire.cut()

    def end(self, client: Client, goal: int) -> list[bytes]:
        """Wait until everything has arrived; returns it."""
        eventually(lambda: count_of(client, self._topic) >= goal, "all arrive", 60.0)
        self.forwarder.end(signal.SIGTERM)
        return stored(client, self._topic)


@pytest.mark.timeout(900)
def test_every_record_of_a_device_arrives_once(
    alone: Command, broker: BrokerProcess, client: Client, topic: str, rng: random.Random, tmp_path: Path
) -> None:
    blows = times(BLOWS, 60 * BLOWS)
    goal = blows * 400
    log = tmp_path / "readings"
    with closing(Device(log, rng, goal)) as device, Wire(broker.url) as wire:
        siege = Siege(alone, broker, wire, rng, topic, str(log), "--trim")
        siege.lay(blows, device.kill)
        device.finish()
        assert siege.end(client, goal) == values(goal)
    left = sum(path.stat().st_size for path in segments(log))
    assert left < 64_000, "the writer has let go of what is forwarded"
