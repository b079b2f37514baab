"""Failures of all that takes part in a forwarding: the program at the source, the forwarder, the broker."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kit.broker.brokers import BrokerProcess
from kit.broker.proxies import Wire
from kit.client.forwarding import count_of, stored
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.machine.commands import Command, Running
from quoth import Client


class Device:
    """A program that writes a log, and is killed and started again.

    It gets the directory, a seed, and the number of records to write, and says when it is ready.
    """

    def __init__(self, program: str, log: Path, rng: random.Random, goal: int) -> None:
        self._program = program
        self._log = log
        self._rng = rng
        self._goal = goal
        log.mkdir()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        seed = str(self._rng.randrange(2**32))
        command = [sys.executable, "-c", self._program, str(self._log), seed, str(self._goal)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def kill(self) -> None:
        """Kill it and start it again."""
        self.close()
        self.crashed()
        self._process = self._start()

    def crashed(self) -> None:
        """Change the log as a crash may have changed it, too; nothing is changed here."""

    def finish(self) -> None:
        """Wait until it has written everything."""
        self._process.communicate(timeout=DEADLINE_S)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Failures:
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

    def run(self, count: int, *others: Callable[[], None]) -> None:
        """Cause a number of random failures; others: ways to do so beside those of this class."""
        for _ in range(count):
            pause(self._rng.random() * 0.4)  # as long as it takes to start; and in the middle of work
            choice = (self.kill_forwarder, self.kill_target, self._wire.cut, self.swallow, *others)
            fail = self._rng.choice(choice)
            print(fail)
            fail()

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
        self._wire.lose_answers()
        pause(self._rng.random() * 0.2)
        self._wire.cut()

    def end(self, client: Client, goal: int) -> list[bytes]:
        """Wait until everything has arrived; returns it."""
        eventually(lambda: count_of(client, self._topic) >= goal, "all arrive", 60.0)
        self.forwarder.end(signal.SIGTERM)
        return stored(client, self._topic)
