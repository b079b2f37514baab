"""Options of a client: defaults, timeouts in seconds as applications give them, pauses of its parts.

A command reads them without loading a client.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from quothwire.errors import error

DEFAULT_URL = "tcp://127.0.0.1:5555"
DEFAULT_TIMEOUT_S = 10.0
BUFFER_MAX = 100_000
"""Records that wait or are in flight: 20 MB of 100-byte records, a second of a busy producer."""
RESEND_S = 5.0
SECONDS_MAX = 365 * 86_400.0
"""As good as for ever, and within what locks and sockets can wait."""


def as_seconds(given: float, what: str = "timeout") -> float:
    """Return a number of seconds, limited to 0 to `SECONDS_MAX`.

    Raises `RequestError` ``bad_request`` for NaN and for everything else that is no number.
    """
    if type(given) is float and 0.0 <= given <= SECONDS_MAX:
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        seconds = float(min(max(given, 0), SECONDS_MAX))
        if not math.isnan(seconds):
            return seconds
    raise error("bad_request", f"{what} is a number of seconds, not {given!r}", "like 2.5")


def deadline_in(seconds: float) -> float:
    """Return a deadline by the monotonic clock. Raises as `as_seconds` does."""
    return time.monotonic() + as_seconds(seconds)


@dataclass(slots=True)
class Timing:
    """The seconds for which the parts of one client wait. A change has effect from the next wait on."""

    resend: float = RESEND_S
    """Until a request without an answer is sent again although the connection looks healthy."""
    tail_wait: float = 30.0
    """For which the broker holds the fetch of a tail; then the tail sends another one."""
    away_pause: float = 0.5
    """Between two attempts of a tail while no broker is there, or it refuses for now."""
    group_wait: float = 1.0
    """For which the broker holds the fetch of a group's member, and the end of the member waits for it: else
    what it brings would be handed out again only after its lease."""
    list_pause: float = 1.0
    """Between two lists of topics, in which new ones may match a pattern."""
    save_pause: float = 0.2
    """Least time between two saves of a tail's cursor, since a save waits for the disk: a crash repeats the
    work of that time. A tail without new records for that time has saved everything that is done."""
    publish_wait: float = 20.0
    """Until the publish of a transaction without an answer is sent again: it may be of gigabytes."""
    publish_absence: float = 60.0
    """For which no broker may be there meanwhile, unless the client's timeout is longer."""
    interrupted: float = 1.0
    """For which a producer waits for batches in flight when the program ends, by Ctrl-C for example."""
