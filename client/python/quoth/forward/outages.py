"""Repeats the attempts of a forwarding through everything that may pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from quoth.core.adaptive_timeout import PAUSE_S, next_pause
from quothwire.errors import BrokerFailure, QuothError


class WaitEvents(Protocol):
    """The observer of attempts."""

    def waits(self, problem: QuothError, seconds: float) -> None:
        """Report a failed attempt; the next one begins after so many seconds."""


def forward_through_outages(
    attempt: Callable[[], object],
    has_progressed: Callable[[], bool],
    events: WaitEvents,
    pause: Callable[[float], object],
) -> None:
    """Repeat an attempt until it returns, after a pause that grows while nothing progresses.

    Raises the error of an attempt that does not pass by itself. A `BrokerFailure` may end with a restart.
    """
    seconds = PAUSE_S
    while True:
        try:
            attempt()
            return
        except QuothError as problem:
            if not problem.retryable and not isinstance(problem, BrokerFailure):
                raise
            seconds = PAUSE_S if has_progressed() else next_pause(problem, seconds)
            chosen = seconds * random.uniform(0.5, 1.0)
            events.waits(problem, chosen)
            pause(chosen)
