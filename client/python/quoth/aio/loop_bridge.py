"""The way from threads to an event loop, which is woken once for everything that has gathered meanwhile."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class LoopBridge:
    """Any thread puts calls in, in the order in which the loop then makes them."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def put(self, call: Callable[..., object], *arguments: Any) -> None:
        """Let the loop make this call soon; never, if it is closed."""
        self._calls.append((call, arguments))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # nobody waits in a loop that is closed
                self.loop.call_soon_threadsafe(self._make_calls)

    def _make_calls(self) -> None:
        self._woken = False
        for _ in range(len(self._calls)):
            call, arguments = self._calls.popleft()
            call(*arguments)
