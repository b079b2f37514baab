"""Allocates pointers: strictly rising, never twice, whatever the clock does."""

from __future__ import annotations

from quothlog.storage.clock import Clock
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX

HORIZON_US = 10_000_000
"""Visible pointers lie at most this far above a durable one, so a step of this size after a loss of power is
above all that were lost."""

AHEAD_US = 60_000_000
"""Pointers are times. If one is further ahead of the clock than this, a clock was wrong once, or is."""


class PointerAllocator:
    """Allocates base = max(now, last + 1), and counts how often the clock steps back."""

    __slots__ = ("_clock", "_latest_now", "clock_steps", "last", "step_us")

    def __init__(self, clock: Clock, last: int) -> None:
        self._clock = clock
        self._latest_now = 0
        self.last = last
        self.clock_steps = 0
        self.step_us = 0

    def take(self, records: int, now: int) -> int:
        """Return the base pointer for a batch. Raises `Conflict` ``pointers_exhausted``; never wraps."""
        if now < self._latest_now:
            self.clock_steps += 1
            self.step_us = max(self.step_us, self._latest_now - now)
        self._latest_now = now
        base = max(now, self.last + 1)
        if base + records - 1 > POINTER_MAX:
            raise error("pointers_exhausted", f"{records} records from pointer {base}")
        self.last = base + records - 1
        return base

    def gauges(self) -> dict[str, int]:
        """Return the largest step back of the clock, and how far the last pointer is ahead of it now."""
        return {"clock_step_us": self.step_us, "borrowed_us": max(0, self.last - self._clock.now())}
