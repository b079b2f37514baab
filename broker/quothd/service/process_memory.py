"""Measures the memory of this process, and what the machine or its control group lets it have."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

MEMORY_UNKNOWN = 4 * 2**30
"""Assumed where the system does not tell."""


class ResidentMemory:
    """Measures the memory of this process, by a descriptor that stays open: later there may be none left."""

    def __init__(self) -> None:
        self._descriptor = -1

    def bytes(self) -> int:
        """Return the bytes that the process holds alone, 0 where the system does not tell."""
        try:
            if self._descriptor < 0:
                self._descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            numbers = os.pread(self._descriptor, 256, 0).split()
        except OSError:
            return 0
        return (int(numbers[1]) - int(numbers[2])) * mmap.PAGESIZE

    def close(self) -> None:
        """Close the descriptor. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def memory_of_machine() -> int:
    """Return the bytes of memory that this process may use, of its control group or of the machine."""
    found: list[int] = [_total_of_machine()]
    for line in _read("/proc/self/cgroup").splitlines():
        _, _, path = line.partition("::")
        folder = Path("/sys/fs/cgroup") / path.strip("/")
        for one in (folder, *folder.parents):
            if (limit := _read(one / "memory.max").strip()).isdigit():
                found.append(int(limit))
    return min(one for one in found if one > 0)


def _total_of_machine() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1_024
    return MEMORY_UNKNOWN


def _read(path: str | Path) -> str:
    """Return the text of a file of the system, "" if it has none."""
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
