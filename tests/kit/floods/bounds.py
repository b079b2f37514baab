"""The bounds that a broker under attack has to keep, and whether it has them yet."""

from __future__ import annotations

import pytest

BOUNDS_PENDING = False
"""Change it to False as soon as the broker has the key `memory_max` and keeps it."""
MEMORY_MAX = 512 * 2**20

bounds_pending = pytest.mark.skipif(BOUNDS_PENDING, reason="the broker does not bound its memory yet")
"""Marks a test that only a broker with these bounds passes."""

BOUNDED: dict[str, object] = {} if BOUNDS_PENDING else {"memory_max": MEMORY_MAX}
"""The settings of a broker under attack."""

SLOWER_MAX = 2.0
"""The p99 of a good client under attack, in that of a quiet time."""
SLOW_S = 0.03
"""A p99 below that is good in any case: the loop of the broker gives requests, events, work and queued
replies 5 ms each in turn. A request waits for these four, however many clients send something, and the good
client shares its core with the broker."""
