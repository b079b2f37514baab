"""Waiting times that are learned: how long to wait for an acknowledgement over a link of unknown speed.

Nobody tells how fast a link is, or that a large batch is still on its way: only acknowledgements do. So more
is sent at once as long as they come quickly; and when one has not come in time, the next attempt sends one
batch alone and waits twice as long.

A measured duration may contain an outage, which says nothing of a link's speed and may last for days. So no
waiting time is derived from one without `bounded`, and what was sent more than once is not measured at all.
"""

from __future__ import annotations

PATIENCE_S, PATIENCE_MAX_S = 30.0, 3_600.0
"""The shortest is half of the time for which a broker remembers a producer for certain."""
WINDOW_BYTES, WINDOW_BYTES_MAX = 2**20, 32 * 2**20
QUICK_S = 2.0
"""What is acknowledged so soon tells of a link that takes more at once."""
MARGIN = 4
"""Times as long as the last one took, the next one may take."""


def bounded(learned: float, least: float, most: float) -> float:
    """Return a waiting time that was derived from a measured duration, kept within named limits."""
    return max(least, min(learned, most))


class Patience:
    """What a link has taught so far. seconds: to wait for an acknowledgement. window: bytes on their way."""

    def __init__(self) -> None:
        self.seconds = PATIENCE_S
        self.window = WINDOW_BYTES

    def acknowledged(self, seconds: float) -> None:
        """Something was, after so many seconds, and had been sent once."""
        self.seconds = bounded(MARGIN * seconds, PATIENCE_S, PATIENCE_MAX_S)
        if seconds < QUICK_S:
            self.window = min(max(2 * self.window, WINDOW_BYTES), WINDOW_BYTES_MAX)
        else:
            self.window //= 2

    def expired(self) -> None:
        """Nothing was in time."""
        self.seconds = bounded(2 * self.seconds, PATIENCE_S, PATIENCE_MAX_S)
        self.window = 0
