"""The bounds that a broker under attack has to keep."""

from __future__ import annotations

MEMORY_MAX = 512 * 2**20
BOUNDED: dict[str, object] = {"memory_max": MEMORY_MAX}
"""The settings of a broker under attack."""

SLOWER_MAX = 2.0
"""The p99 of a good client under attack, in that of a quiet time."""
SLOW_S = 0.06
"""A p99 below that is good in any case: the good client shares a core with the broker, which is busy all the
time. Each of the four times that a request or its reply passes to another thread, that thread waits for up to
three others, which have a tick of 4 ms each: the two I/O threads of libzmq, and the watch of the memory."""
