"""The bounds that a broker under attack has to keep."""

from __future__ import annotations

MEMORY_MAX = 512 * 2**20
BOUNDED: dict[str, object] = {"memory_max": MEMORY_MAX}
"""The settings of a broker under attack."""

SLOWER_MAX = 2.0
"""The p99 of a good client under attack, in that of a quiet time."""
SLOW_S = 0.03
"""A p99 below that is good in any case: the loop of the broker gives requests, events, work and queued
replies 5 ms each in turn. A request waits for these four, however many clients send something, and the good
client shares its core with the broker."""
