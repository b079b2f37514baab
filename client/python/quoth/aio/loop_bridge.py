"""The bridge from threads to an event loop, which is woken once for all calls that have been collected."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class LoopBridge:
    """Calls of any thread, which the loop makes in the same order."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def put(self, call: Callable[..., object], *arguments: Any) -> None:
        """Let the loop make a call soon; never, if it is closed."""
        self._calls.append((call, arguments))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed, and no task waits in it
                self.loop.call_soon_threadsafe(self._make_calls)

    def _make_calls(self) -> None:
        self._woken = False
        for _ in range(len(self._calls)):
            call, arguments = self._calls.popleft()
            call(*arguments)
