"""The rate limit of a replay: seconds of original time that pass in one second."""

from __future__ import annotations

import time
from collections.abc import Callable

LATE_S = 2.0
"""Seconds that a replay may be late before it reports it."""


class RateLimit:
    """Waits until records are due: its clock starts with the first ones.

    speed: seconds of original time that pass in one second. tell: called when the replay is late, and again
    when it is twice as late. clock, wait: replaced by tests.
    """

    def __init__(
        self,
        speed: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.behind = 0.0
        """The largest delay so far, in seconds."""
        self._speed = speed
        self._tell = tell
        self._clock = clock
        self._wait = wait
        self._start: tuple[float, int] | None = None
        self._reported = LATE_S / 2

    @property
    def tick(self) -> int:
        """Microseconds of original time that pass in a second, and are published at once."""
        return max(1, round(self._speed * 1e6))

    def await_(self, time_us: int) -> None:
        """Return when records are due. time_us: their original time, in microseconds."""
        now = self._clock()
        if self._start is None:
            self._start = now, time_us
        started, first = self._start
        late = now - started - (time_us - first) / 1e6 / self._speed
        if late < 0:
            self._wait(-late)
            return
        self.behind = max(self.behind, late)
        if late >= 2 * self._reported:
            self._reported = late
            self._tell(f"it cannot keep up: {late:.1f} s behind a speed of {self._speed:g}")
