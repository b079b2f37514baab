"""Waiting times: the pauses between attempts, and how long to wait for an acknowledgement.

The latter is learned, for a link may have any speed. Only acknowledgements show how fast it is, or that a
large batch is still on its way. So more is sent at once as long as they come quickly; and when one has not
come in time, the next attempt sends one batch alone and waits twice as long.

A measured duration may contain an outage, which says nothing of a link's speed and may last for days. So no
waiting time is derived from one without `bounded`, and what was sent more than once is not measured at all.
"""

from __future__ import annotations

from quoth.core.request_state import passes_soon
from quothwire.errors import Disconnected, QuothError

PATIENCE_S, PATIENCE_MAX_S = 30.0, 3_600.0
"""The shortest is half of the time for which a broker remembers a producer for certain."""
WINDOW_BYTES, WINDOW_BYTES_MAX = 2**20, 32 * 2**20
QUICK_S = 2.0
"""What is acknowledged so soon tells of a link that takes more at once."""
MARGIN = 4
"""Times as long as the last one took, the next one may take."""
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
"""Between two attempts of a forwarding. The pause grows, unless something was stored in between, or no broker
answered: then the attempt itself has waited."""
PASSING_MAX_S = 1.0
"""The longest pause after a refusal that ends with the broker's outage or overload."""


def bounded(learned: float, least: float, most: float) -> float:
    """Return a waiting time that was derived from a measured duration, kept within named limits."""
    return max(least, min(learned, most))


class AdaptiveTimeout:
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


def next_pause(problem: QuothError, pause: float) -> float:
    """Return the pause after an attempt that stored nothing and followed a pause of so many seconds."""
    if isinstance(problem, Disconnected):
        return PAUSE_S
    return min(2 * pause, PASSING_MAX_S if passes_soon(problem) else PAUSE_MAX_S)
