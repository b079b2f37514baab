"""Whether the names in a directory may have changed, for whoever would list it again and again.

A directory's time of change tells, which is as fine as the system's clock tick, or as two seconds on the FAT
of a memory card: two changes within one tick look like one. So a change is trusted to be the last of its tick
only once it is three seconds old.
"""

from __future__ import annotations

import time
from pathlib import Path

_SETTLED_NS = 3 * 10**9


class DirectoryWatch:
    """The names in a directory. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._changed_ns = -1

    def may_differ(self) -> bool:
        """May they be others than when this was asked before? Costs 2 us. Raises OSError."""
        changed_ns = self._directory.stat().st_mtime_ns
        if changed_ns == self._changed_ns:
            return False
        age_ns = time.time_ns() - changed_ns
        self._changed_ns = changed_ns if age_ns >= _SETTLED_NS else -1  # also if the clock stepped back
        return True

    def forget(self) -> None:
        """They may differ the next time."""
        self._changed_ns = -1
