"""Watches the memory of the process, which `memory_max` bounds.

What the broker holds for clients is counted before it is held, but for one thing: libzmq collects the frames
of a message until the last one has come, and tells nothing of that. So the process is looked at as a whole.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path

from quothd.service.allocator import allocated_bytes, give_back_memory

MEMORY_UNKNOWN = 4 * 2**30
"""Assumed where the system does not tell."""
SHARE = 4
"""By default a broker takes this part of what there is: a machine has other things to do."""
LOOK_S, LOOK_SOON_S = 0.1, 0.02
"""Between two looks, and while more than `SOON_PART` is used: loopback brings 40 MB in 20 ms."""
SOON_PART, SHORT_PART, REFUSED_PART = 0.25, 0.4, 0.7
"""Of the limit: above the second, connections are ended until the rest is free, above the third, requests
that need memory are refused. What comes between two looks has to fit above."""
FREED_PART = 3
"""Of what is too much: libzmq frees what a connection held when its I/O thread comes to it, and more comes
until then."""
GIVE_BACK_S, GIVE_BACK_SOON_S, GIVE_BACK_NOW_S = 5.0, 0.5, 0.1
"""Between two times that freed memory is given back to the system; while memory is short; and above
`GIVE_BACK_NOW_PART`. Each takes up to 0.1 s a GB, in which other threads allocate little."""
GIVE_BACK_NOW_PART = 0.55
"""Of the limit: under a flood, most of the resident memory is free, in the heaps of many threads."""
FREE_BYTES_MAX = 64 * 2**20
"""Freed memory that the process keeps for itself."""
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


class MemoryWatch:
    """Looks at the memory of the process in the thread "quoth-memory", and lets some be freed if it is short.

    limit: `memory_max`, 0 for none, without a thread. monotonic: the time in seconds. resident, allocated:
    measure the process. used: what was measured last. is_short: requests that need memory are refused.
    """

    def __init__(
        self,
        limit: int,
        monotonic: Callable[[], float],
        resident: Callable[[], int] = resident_bytes,
        allocated: Callable[[], int | None] = allocated_bytes,
    ) -> None:
        self.limit = limit
        self.used = 0
        self.is_short = False
        self._monotonic = monotonic
        self._resident = resident
        self._allocated = allocated
        self._gave_back_at = -inf
        self._stops = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, free: Callable[[int], object]) -> None:
        """Begin to look. free: frees so many bytes, in the thread that looks."""
        if self.limit:
            self._thread = threading.Thread(target=self._run, args=(free,), name="quoth-memory", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread. A second call does nothing."""
        self._stops.set()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()

    def look(self, free: Callable[[int], object]) -> float:
        """Measure, and let memory be freed if it is short; returns the seconds until the next look."""
        now, most = self._monotonic(), int(self.limit * SHORT_PART)
        needed = self.used = self._resident()
        is_due = now >= self._gave_back_at + self._give_back_pause(most)
        if (needed > most or is_due) and (allocated := self._allocated()) is not None:
            needed = min(needed, allocated + INTERPRETER_BYTES)
        self.is_short = needed > self.limit * REFUSED_PART
        if needed > most:
            free(FREED_PART * (needed - most))
        if is_due and (self.used > most or self.used - needed > FREE_BYTES_MAX):
            give_back_memory()
            self._gave_back_at = now
        return LOOK_SOON_S if self.used > self.limit * SOON_PART else LOOK_S

    def _give_back_pause(self, most: int) -> float:
        """Return the seconds between two times that memory is given back. most: bytes that are no lack."""
        if self.used > self.limit * GIVE_BACK_NOW_PART:
            return GIVE_BACK_NOW_S
        return GIVE_BACK_SOON_S if self.used > most else GIVE_BACK_S

    def _run(self, free: Callable[[int], object]) -> None:
        while not self._stops.wait(self.look(free)):
            pass


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
