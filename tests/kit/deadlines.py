"""Waiting in tests: for a condition, with a deadline; the only place that sleeps."""

from __future__ import annotations

import asyncio
import glob
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

DEADLINE_S = 20.0
"""Far beyond what anything takes: whoever reaches it has failed."""

_PAUSE_S = 0.005

Result = TypeVar("Result")


def eventually(check: Callable[[], Result], what: str, seconds: float = DEADLINE_S) -> Result:
    """Look again and again until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what} (last: {found!r})"
        time.sleep(_PAUSE_S)


def appears(directory: Path, pattern: str, what: str, seconds: float = DEADLINE_S) -> list[str]:
    """Wait until a file under `directory` matches, and return the names of those that do.

    Directories may vanish meanwhile: `Path.glob` fails then, `glob.glob` goes on.
    """
    return eventually(lambda: glob.glob(pattern, root_dir=directory), what, seconds)


async def soon(check: Callable[[], Awaitable[Result]], what: str, seconds: float = DEADLINE_S) -> Result:
    """`eventually`, for an answer that is awaited, while the event loop goes on."""
    deadline = time.monotonic() + seconds
    while True:
        found = await check()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what} (last: {found!r})"
        await asyncio.sleep(_PAUSE_S)


def hold(check: Callable[[], bool], what: str, seconds: float) -> None:
    """See to it that something stays true for a while: for what must not happen there is no event."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert check(), f"not any more: {what}"
        time.sleep(_PAUSE_S)


def pause(seconds: float) -> None:
    """Let time pass where the passing of time is what is tested."""
    time.sleep(seconds)
