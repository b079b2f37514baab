"""Watches a directory to which another process writes: detects new names, and waits for what is new."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quothlog.storage.clock import Clock

PAUSE_S, PAUSE_MAX_S = 0.001, 0.05
"""Between two looks at a log in which nothing happens: a look costs 20 us."""
_SETTLED_US = 3 * 10**6

T = TypeVar("T")


class DirectoryWatch:
    """Detects whether the names in a directory may have changed, so that it is listed only then.

    Not thread-safe. The time of change of a directory shows it, which is as fine as the system's clock tick,
    or as two seconds on the FAT of a memory card: two changes within one tick look like one. So a change is
    trusted to be the last of its tick only once it is three seconds old.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._changed_ns = -1

    def may_differ(self) -> bool:
        """Return True if the names may have changed since the last call. Costs 2 us. Raises OSError."""
        changed_ns = self._directory.stat().st_mtime_ns
        if changed_ns == self._changed_ns:
            return False
        age_us = self._clock.now() - changed_ns // 1_000
        self._changed_ns = changed_ns if age_us >= _SETTLED_US else -1  # also if the clock stepped back
        return True

    def forget(self) -> None:
        """Let the next call of `may_differ` return True."""
        self._changed_ns = -1


def take_in_time(take: Callable[[], list[T]], seconds: float | None, clock: Clock) -> list[T]:
    """Return what `take` returns as soon as that is anything; nothing after so many seconds, None: never."""
    pause = PAUSE_S
    until = math.inf if seconds is None else clock.monotonic() + seconds
    while not (found := take()):
        left = until - clock.monotonic()
        if left <= 0:
            break
        clock.sleep(min(pause, left))
        pause = min(2 * pause, PAUSE_MAX_S)
    return found
