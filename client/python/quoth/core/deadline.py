"""How long an application waits: seconds as it says them, and deadlines by the monotonic clock."""

from __future__ import annotations

import math
import time

from quothwire.errors import error

SECONDS_MAX = 365 * 86_400.0
"""As good as for ever, and within what locks and sockets can wait."""


def as_seconds(given: float, what: str = "timeout") -> float:
    """The seconds that were given, from 0 to `SECONDS_MAX`.

    Infinity is a long time and less than nothing is none; what is no number raises `RequestError`
    ``bad_request``.
    """
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        seconds = float(min(max(given, 0), SECONDS_MAX))
        if not math.isnan(seconds):
            return seconds
    raise error("bad_request", f"{what} is a number of seconds, not {given!r}", "like 2.5")


def deadline_in(seconds: float) -> float:
    """A deadline by the monotonic clock. Raises as `as_seconds` does."""
    return time.monotonic() + as_seconds(seconds)
