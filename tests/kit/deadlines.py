"""Waits for conditions with a deadline. The only module of the tests that sleeps."""

from __future__ import annotations

import asyncio
import glob
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

DEADLINE_S = 20.0
"""Far longer than any step takes: a test that reaches it has failed."""

_PAUSE_S = 0.005

Result = TypeVar("Result")


def eventually(check: Callable[[], Result], what: str, seconds: float = DEADLINE_S) -> Result:
    """Repeat a check until its result is true, and return the result."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what} (last: {found!r})"
        time.sleep(_PAUSE_S)


def becomes(read: Callable[[], Result], wanted: Result, what: str, seconds: float = DEADLINE_S) -> None:
    """Repeat a reading until it is as wanted; the failure names the last one."""
    last: list[Result] = []

    def is_wanted() -> bool:
        last[:] = [read()]
        return last == [wanted]

    try:
        eventually(is_wanted, what, seconds)
    except AssertionError as failure:
        raise AssertionError(f"{failure}; the last reading was {last}") from failure


def appears(directory: Path, pattern: str, what: str, seconds: float = DEADLINE_S) -> list[str]:
    """Wait until files under `directory` match, and return their names.

    Directories may vanish meanwhile: `Path.glob` fails then, `glob.glob` goes on.
    """
    return eventually(lambda: glob.glob(pattern, root_dir=directory), what, seconds)


async def soon(check: Callable[[], Awaitable[Result]], what: str, seconds: float = DEADLINE_S) -> Result:
    """Repeat a coroutine until its result is true, as `eventually` does, while the event loop goes on."""
    deadline = time.monotonic() + seconds
    while True:
        found = await check()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what} (last: {found!r})"
        await asyncio.sleep(_PAUSE_S)


def hold(check: Callable[[], bool], what: str, seconds: float) -> None:
    """Check that a condition stays true for a while, because the absence of an event sends no event."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert check(), f"no longer true: {what}"
        time.sleep(_PAUSE_S)


def pause(seconds: float) -> None:
    """Sleep, in tests of the passing of time."""
    time.sleep(seconds)
