"""The pace of a replay: so many seconds of original time pass in one."""

from __future__ import annotations

import time
from collections.abc import Callable

LATE_S = 2.0
"""How far behind a replay may be before that is told."""


class RateLimit:
    """Says when something is due: its clock starts with the first that it is asked about.

    speed: seconds of original time that pass in one second. tell: hears when it cannot be kept, and when it
    has become twice as bad. clock, wait: those of a test.
    """

    def __init__(
        self,
        speed: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.behind = 0.0
        """The most seconds that anything was late."""
        self._speed = speed
        self._tell = tell
        self._clock = clock
        self._wait = wait
        self._start: tuple[float, int] | None = None
        self._told = LATE_S / 2

    @property
    def tick(self) -> int:
        """Microseconds of original time that pass in a second: what is published at once."""
        return max(1, round(self._speed * 1e6))

    def await_(self, moment: int) -> None:
        """Return when something is due. moment: its original time, in microseconds."""
        now = self._clock()
        if self._start is None:
            self._start = now, moment
        started, first = self._start
        late = now - started - (moment - first) / 1e6 / self._speed
        if late < 0:
            self._wait(-late)
            return
        self.behind = max(self.behind, late)
        if late >= 2 * self._told:
            self._told = late
            self._tell(f"it cannot keep up: {late:.1f} s behind a speed of {self._speed:g}")
