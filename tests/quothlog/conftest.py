"""Fixtures of all tests of the log: a directory, a clock, and logs that are closed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.clocks import ManualClock
from kit.disk.crashed_log import CrashedLog, make_crashed_log
from quothlog import Log


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a log that a test begins."""
    return tmp_path / "log"


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves on by a millisecond at every look."""
    return ManualClock(tick=1_000)


@pytest.fixture
def open_log(directory: Path, clock: ManualClock) -> Iterator[Callable[..., Log]]:
    """Open the log of this test; whatever is open at its end is closed."""
    opened: list[Log] = []

    def open_it(at: Path = directory, **options: Any) -> Log:
        opened.append(Log.open(at, **{"clock": clock, **options}))
        return opened[-1]

    yield open_it
    for log in opened:
        log.close()


@pytest.fixture
def log(open_log: Callable[..., Log]) -> Log:
    """A new log."""
    return open_log()


@pytest.fixture
def crashed_log(tmp_path: Path, directory: Path, clock: ManualClock) -> CrashedLog:
    """A log of three segments as a crash left it."""
    return make_crashed_log(tmp_path, directory, clock)
