"""Pauses between attempts, and a timeout for acknowledgements that adapts to the link.

A link may have any speed, and only acknowledgements show it. So more is sent at once as long as they come
quickly; if one does not come in time, the next attempt sends one batch alone and waits twice as long.

A measured duration may contain an outage, which says nothing about the link and may last for days. So no
timeout is derived from one without `bounded`, and a batch that was sent more than once is not measured.
"""

from __future__ import annotations

from quoth.core.request_state import passes_soon
from quothwire.errors import Disconnected, QuothError

TIMEOUT_S, TIMEOUT_MAX_S = 30.0, 3_600.0
"""The shortest is half of the time for which a broker remembers a producer for certain."""
WINDOW_BYTES, WINDOW_BYTES_MAX = 2**20, 32 * 2**20
QUICK_S = 2.0
"""A link that acknowledges within these seconds can take more at once."""
MARGIN = 4
"""The timeout as a multiple of the last duration."""
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
"""Seconds between two attempts to forward. The pause grows unless something was stored in between, or no
broker answered: then the attempt itself has waited."""
PASSING_MAX_S = 1.0
"""The longest pause after an error that ends with the broker's outage or overload."""


def bounded(learned: float, least: float, most: float) -> float:
    """Return a waiting time that was derived from a measured duration, kept within named limits."""
    return max(least, min(learned, most))


class AdaptiveTimeout:
    """A timeout that follows measured durations.

    seconds: to wait for an acknowledgement, never less than `least`. window: bytes to have in flight.
    """

    def __init__(self, least: float = TIMEOUT_S) -> None:
        self._least = self.seconds = least
        self.window = WINDOW_BYTES

    def acknowledged(self, seconds: float) -> None:
        """Note that a batch which was sent once was acknowledged after so many seconds."""
        self.seconds = bounded(MARGIN * seconds, self._least, TIMEOUT_MAX_S)
        if seconds < QUICK_S:
            self.window = min(max(2 * self.window, WINDOW_BYTES), WINDOW_BYTES_MAX)
        else:
            self.window //= 2

    def expired(self) -> None:
        """Note that nothing was acknowledged in time."""
        self.seconds = bounded(2 * self.seconds, self._least, TIMEOUT_MAX_S)
        self.window = 0


def next_pause(problem: QuothError, pause: float) -> float:
    """Return the pause after an attempt that stored nothing and followed a pause of so many seconds."""
    if isinstance(problem, Disconnected):
        return PAUSE_S
    return min(2 * pause, PASSING_MAX_S if passes_soon(problem) else PAUSE_MAX_S)
