"""Starts attackers and good clients as processes that end with their test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kit.deadlines import DEADLINE_S
from kit.machine.processes import python_of

_TESTS = Path(__file__).parents[2]
_NICE = 5
"""Attackers on the core of a broker, where there is one core only, leave most of it to the broker."""


@contextmanager
def program(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program of the kit with pipes to its stdin and stdout; end it by closing its stdin."""
    process = subprocess.Popen(
        [*python_of(module), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout, suppress(BrokenPipeError), process.stdin:
        try:
            yield process
            process.stdin.close()
            assert process.wait(DEADLINE_S) in (0, -signal.SIGKILL)
        finally:
            process.kill()
            process.wait(DEADLINE_S)


class Attackers:
    """Attackers that wait for `begin`. Made by `attackers`."""

    def __init__(self, processes: dict[str, subprocess.Popen[str]]) -> None:
        self._processes = processes

    @property
    def pids(self) -> dict[str, int]:
        """Return the pid of each flood."""
        return {name: process.pid for name, process in self._processes.items()}

    def begin(self, seconds: float) -> None:
        """Let all of them attack for so long."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()

    def finish(self) -> dict[str, Counter[str]]:
        """Wait until the attack is over; returns what each has sent so far."""
        return {name: Counter(json.loads(_line_of(process))) for name, process in self._processes.items()}


@contextmanager
def attackers(url: str, floods: Iterable[str], cores: set[int]) -> Iterator[Attackers]:
    """Start an attacker for each flood, all of which are ready."""
    host, port = url.removeprefix("tcp://").split(":")
    on = ",".join(map(str, sorted(cores)))
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(program("kit.floods.attacker", host, port, name, on, str(_NICE)))
            for name in floods
        }
        for process in started.values():
            assert _line_of(process) == "ready\n"
        yield Attackers(started)


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the attacker has ended"
    return line
