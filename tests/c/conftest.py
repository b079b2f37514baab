"""The library in C with its programs, built once for all tests of a run, with sanitizers if possible."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S
from kit.machine.commands import COMMAND_S, Running
from kit.machine.cprograms import (
    DRIVERS,
    ENVIRONMENT,
    SANITIZERS,
    Calls,
    Drive,
    MakeCalls,
    can_sanitize,
    link,
    shared_library,
)

Start = Callable[..., Running]


TEST_S = 120.0
"""The time for a test without the build, which has a time of its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the build out of the time of the first test that needs it."""
    for item in items:
        needs_build = "built" in getattr(item, "fixturenames", ())
        if needs_build and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S, func_only=True))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which cmake has built everything. Other workers wait for the first one."""
    with shared_library(tmp_path_factory) as folder:
        if not (folder / "driver").exists():
            is_sanitized = can_sanitize()
            for name, more in (("calls", ("group_calls",)), ("driver", ())):
                library = folder / "libquoth.a", "-lzmq"
                options = (*(SANITIZERS if is_sanitized else ()),)
                sources = [DRIVERS / f"{one}.c" for one in (name, *more)]
                link([*sources, library[0]], *options, library[1], program=folder / name)
    return folder


@pytest.fixture(scope="session")
def drive(built: Path) -> Drive:
    """Gives commands to the driver of the codec, see `driver/driver.c`, and returns its lines."""

    def run(commands: Iterable[str]) -> list[str]:
        done = subprocess.run(
            [built / "driver"],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            env=ENVIRONMENT,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run


@pytest.fixture
def make_calls(built: Path) -> Iterator[MakeCalls]:
    """Start a program that makes calls of the library: see `driver/calls.c`."""
    started: list[Calls] = []

    def start(url: str, *arguments: str) -> Calls:
        started.append(Calls(built / "calls", url, *arguments))
        return started[-1]

    yield start
    try:
        for one in started:
            one.end()
    finally:
        for one in started:
            one.kill()


@pytest.fixture
def calls(make_calls: MakeCalls, broker: BrokerProcess) -> Calls:
    """Return such a program that is connected to the broker of the file."""
    return make_calls(broker.url)


@pytest.fixture
def start(built: Path) -> Iterator[Start]:
    """Start an example, and kill it at the end of the test if it still runs."""
    started: list[Running] = []

    def start_it(
        name: str, *arguments: str, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE
    ) -> Running:
        program = built / "examples" / name
        process = subprocess.Popen(
            [program, *arguments], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=ENVIRONMENT
        )
        started.append(Running(process))
        return started[-1]

    yield start_it
    for one in started:
        if one.process.poll() is None:
            os.kill(one.process.pid, signal.SIGKILL)
        one.process.communicate(timeout=DEADLINE_S)
