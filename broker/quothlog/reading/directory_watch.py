"""Tells whether the names in a directory may have changed, so that it need not be listed again and again.

A directory's time of change tells, which is as fine as the system's clock tick, or as two seconds on the FAT
of a memory card: two changes within one tick look like one. So a change is trusted to be the last of its tick
only once it is three seconds old.
"""

from __future__ import annotations

from pathlib import Path

from quothlog.storage.clock import Clock

_SETTLED_US = 3 * 10**6


class DirectoryWatch:
    """Watches the names in a directory. Not thread-safe."""

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
