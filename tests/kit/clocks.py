"""Clocks that a test sets."""

from __future__ import annotations

import threading
from collections.abc import Callable

from quothlog.storage.clock import SystemClock

START = 1_767_323_045_000_000
"""The 2nd of January 2026, a little after three in the morning, UTC."""
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class ManualClock:
    """A `quothlog.storage.clock.Clock` with the time that the test sets.

    tick: microseconds that pass with every call, as on a real clock.
    """

    def __init__(self, now: int = START, *, tick: int = 0) -> None:
        self._now = now
        self._passed = 0
        self._boots = 1
        self.tick = tick

    def now(self) -> int:
        now = self._now
        self._now += self.tick
        return now

    def monotonic(self) -> float:
        """See `Clock.monotonic`: it moves with `step` forwards."""
        return self._passed / SECOND

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`: the clock moves by so much, and no time passes."""
        self.step(round(seconds * SECOND))

    def boot_id(self) -> bytes:
        return self._boots.to_bytes(16, "little")

    def set(self, now: int) -> None:
        """Set the time, earlier or later."""
        self._now = now

    def step(self, microseconds: int) -> None:
        """Step the time, back if the number is negative."""
        self._now += microseconds
        self._passed += max(0, microseconds)

    def reboot(self) -> None:
        """Change the boot id, as a power cut does."""
        self._boots += 1


class HookedClock(SystemClock):
    """The system's clock in a broker, at which a test counts the steps of its threads, or interferes.

    ahead: seconds by which it is fast. hook: called with the name of each thread that asks for the monotonic
    time.
    """

    def __init__(self) -> None:
        self.ahead = 0.0
        self.hook: Callable[[str], None] = lambda _thread: None

    def now(self) -> int:
        return super().now() + round(self.ahead * SECOND)

    def monotonic(self) -> float:
        self.hook(threading.current_thread().name)
        return super().monotonic() + self.ahead
