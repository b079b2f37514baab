"""Watches the memory of the process, which `memory_max` bounds.

What the broker holds for clients is counted before it is held, but for one thing: libzmq collects the frames
of a message until the last one has come, and tells nothing of that. So the process is looked at as a whole.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Protocol

from quothd.service.allocator import allocated_bytes, give_back_memory
from quothd.service.log_events import note
from quothd.service.process_memory import ResidentMemory

SHARE = 4
"""By default a broker takes this part of what there is: a machine has other things to do."""
LOOK_S, LOOK_SOON_S = 0.1, 0.02
"""Between two looks, and while more than `SOON_PART` is used: loopback brings 40 MB in 20 ms."""
SOON_PART, SHORT_PART, REFUSED_PART = 0.25, 0.4, 0.7
"""Of the limit: above the second, connections are ended until the rest is free, above the third, requests
that need memory are refused. What comes between two looks has to fit above."""
FAILED_S = 1.0
"""After a look that has failed."""
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
OWN_S, OWN_SAMPLES = 5.0, 12
"""Between two samples of the memory that no connection holds, and how many count: the largest one does."""
OWN_PART = 0.25
"""Of what that memory leaves free: connections may hold as much at least, or a broker with many topics would
end all of them for ever."""


class Holders(Protocol):
    """A holder of memory for clients, which can free some. Called in the thread that watches."""

    def held_bytes(self) -> float:
        """Return an upper bound of what is held, infinity for none."""

    def end_largest(self, size: int, now: float) -> int:
        """Free so many bytes; returns how many it was."""


class MemoryWatch:
    """Looks at the memory of the process in the thread "quoth-memory", and lets some be freed if it is short.

    limit: `memory_max`, 0 for none, without a thread. monotonic: the time in seconds. resident, allocated:
    measure the process. used: what was measured last. own: what no connection holds of that, as far as it
    matters. is_short: requests that need memory are refused.
    """

    def __init__(
        self,
        limit: int,
        monotonic: Callable[[], float],
        resident: Callable[[], int] | None = None,
        allocated: Callable[[], int | None] = allocated_bytes,
    ) -> None:
        self.limit = limit
        self.used = self.own = 0
        self.is_short = False
        self._monotonic = monotonic
        self._memory = ResidentMemory()
        self._resident = resident or self._memory.bytes
        self._allocated = allocated
        self._gave_back_at = self._sampled_at = -inf
        self._samples: deque[int] = deque(maxlen=OWN_SAMPLES)
        self._stops = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, holders: Holders) -> None:
        """Begin to look."""
        if self.limit:
            self._thread = threading.Thread(
                target=self._run, args=(holders,), name="quoth-memory", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread. A second call does nothing."""
        self._stops.set()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()
        self._memory.close()

    def look(self, holders: Holders) -> float:
        """Measure, and let memory be freed if it is short; returns the seconds until the next look."""
        now = self._monotonic()
        needed = self.used = self._resident()
        most = max(int(self.limit * SHORT_PART), self.own + int((self.limit - self.own) * OWN_PART))
        is_due = now >= self._gave_back_at + self._give_back_pause(most)
        if (needed > most or is_due) and (allocated := self._allocated()) is not None:
            needed = min(needed, allocated + INTERPRETER_BYTES)
        self.is_short = needed > max(self.limit * REFUSED_PART, most)
        if self.used > self.limit * SOON_PART and now >= self._sampled_at + OWN_S:
            self._samples.append(max(0, needed - int(min(holders.held_bytes(), needed))))
            self.own, self._sampled_at = max(self._samples), now
        if needed > most:
            holders.end_largest(FREED_PART * (needed - most), now)
        if is_due and (self.used > most or self.used - needed > FREE_BYTES_MAX):
            give_back_memory()
            self._gave_back_at = now
        return LOOK_SOON_S if self.used > self.limit * SOON_PART else LOOK_S

    def _give_back_pause(self, most: int) -> float:
        """Return the seconds between two times that memory is given back. most: bytes that are no lack."""
        if self.used > self.limit * GIVE_BACK_NOW_PART:
            return GIVE_BACK_NOW_S
        return GIVE_BACK_SOON_S if self.used > most else GIVE_BACK_S

    def _run(self, holders: Holders) -> None:
        pause = 0.0
        while not self._stops.wait(pause):
            try:
                pause = self.look(holders)
            except Exception as problem:  # a lack of memory, perhaps
                note("memory_watch_failed", problem)
                pause = FAILED_S
