"""Waits for the extension of leases."""

from __future__ import annotations

import math

from kit.deadlines import eventually
from quoth import ConsumerGroup


def extended(group: ConsumerGroup, times: int = 2) -> None:
    """Wait until the lease of the first record in flight was extended so often.

    What is left of a lease only falls otherwise, unless the record was handed out again.
    """
    lowest = math.inf

    def rises() -> bool:
        nonlocal lowest
        before, left = lowest, group.pending()[0].seconds
        lowest = min(before, left)
        return left > before

    for _ in range(times):
        eventually(rises, "the lease is extended")
        lowest = math.inf
