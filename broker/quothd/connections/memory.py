"""Watches the memory of the process, which `memory_max` bounds.

What the broker holds for clients is counted before it is held, but for one thing: libzmq collects the frames
of a message until the last one has come, and tells nothing of that. So the process is looked at as a whole.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MEMORY_UNKNOWN = 4 * 2**30
"""Assumed where the system does not tell."""
SHARE = 4
"""By default a broker takes this part of what there is: a machine has other things to do."""
LOOK_S, LOOK_SOON_S = 0.1, 0.02
"""Between two looks, and while more than `SOON_PART` is used: loopback brings 40 MB in 20 ms."""
SOON_PART, SHORT_PART, REFUSED_PART = 0.35, 0.5, 0.75
"""Of the limit: above the second, connections are ended until the rest is free, above the third, requests
that need memory are refused. What comes between two looks has to fit above."""
TRIM_S = 0.5
"""Between two times that the allocator is asked to return what is free; that takes up to 0.1 s a GB."""
INTERPRETER_BYTES = 64 * 2**20
"""Memory that does not come from the allocator of the C library."""


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


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds alone, 0 where the system does not tell."""
    numbers = _read("/proc/self/statm").split()
    return (int(numbers[1]) - int(numbers[2])) * mmap.PAGESIZE if len(numbers) > 2 else 0


def allocated_bytes() -> int | None:
    """Return the bytes that the allocator of the C library has given out; None where it does not tell.

    Freed memory stays resident until it is returned to the system.
    """
    if _mallinfo2 is None:
        return None
    found: _MallInfo = _mallinfo2()
    return int(found.uordblks + found.hblkhd)


def return_free_memory() -> None:
    """Let the allocator of the C library return to the system what is free."""
    if _malloc_trim is not None:
        _malloc_trim(0)


class MemoryWatch:
    """Decides when memory is short. Owned by the front end's thread.

    limit: `memory_max`, 0 for none. resident, allocated: measure the process. used: what was measured last.
    is_short: requests that need memory are refused.
    """

    def __init__(
        self,
        limit: int,
        resident: Callable[[], int] = resident_bytes,
        allocated: Callable[[], int | None] = allocated_bytes,
    ) -> None:
        self.limit = limit
        self.used = 0
        self.is_short = False
        self._resident = resident
        self._allocated = allocated
        self._look_at = self._trim_at = 0.0

    def excess(self, now: float) -> int:
        """Return the bytes that have to become free now; 0 if none, or if it is not time for a look."""
        if not self.limit or now < self._look_at:
            return 0
        most, self.used = int(self.limit * SHORT_PART), self._resident()
        needed = self.used
        if needed > most:
            self._return_free(now)
            if (allocated := self._allocated()) is not None:
                needed = min(needed, allocated + INTERPRETER_BYTES)
        self.is_short = needed > self.limit * REFUSED_PART
        self._look_at = now + (LOOK_SOON_S if self.used > self.limit * SOON_PART else LOOK_S)
        return max(0, needed - most)

    def next_look(self) -> float | None:
        """Return the monotonic time of the next look, None without a limit."""
        return self._look_at if self.limit else None

    def _return_free(self, now: float) -> None:
        """Return free memory to the system, in a thread, since that takes long."""
        if now >= self._trim_at:
            self._trim_at = now + TRIM_S
            with suppress(RuntimeError, MemoryError):  # it is tried again
                threading.Thread(target=return_free_memory, name="quoth-trim", daemon=True).start()


class _MallInfo(ctypes.Structure):
    """Of mallinfo2(3): hblkhd are the bytes in mappings, uordblks those given out of the heaps."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks")),
        *((name, ctypes.c_size_t) for name in ("fsmblks", "uordblks", "fordblks", "keepcost")),
    )


_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
_mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
if _mallinfo2 is not None:
    _mallinfo2.restype = _MallInfo


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
