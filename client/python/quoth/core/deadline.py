"""Timeouts in seconds as applications give them, and deadlines by the monotonic clock."""

from __future__ import annotations

import math
import time

from quothwire.errors import error

SECONDS_MAX = 365 * 86_400.0
"""As good as for ever, and within what locks and sockets can wait."""


def as_seconds(given: float, what: str = "timeout") -> float:
    """Return a number of seconds, limited to 0 to `SECONDS_MAX`.

    Raises `RequestError` ``bad_request`` for NaN and for everything else that is no number.
    """
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        seconds = float(min(max(given, 0), SECONDS_MAX))
        if not math.isnan(seconds):
            return seconds
    raise error("bad_request", f"{what} is a number of seconds, not {given!r}", "like 2.5")


def as_seconds_or_none(given: float | None, what: str = "timeout") -> float | None:
    """Return `as_seconds`, or None if no limit is given."""
    return None if given is None else as_seconds(given, what)


def deadline_in(seconds: float) -> float:
    """Return a deadline by the monotonic clock. Raises as `as_seconds` does."""
    return time.monotonic() + as_seconds(seconds)
