"""Counts durations in buckets, as Prometheus' histograms do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

BOUNDS = (
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
)  # fmt: skip
"""Seconds, inclusive upper bounds: from a write into the page cache to a disk that stands still."""


class Histogram:
    """The number of durations in each bucket, and their sum in seconds.

    counts: one for each bound, and one for what lies above the last; not cumulative. One thread writes.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def __bool__(self) -> bool:
        return any(self.counts)

    def observe(self, durations: Iterable[float]) -> None:
        """Count durations, in seconds."""
        for seconds in durations:
            self.counts[bisect_left(BOUNDS, seconds)] += 1
            self.total += seconds

    def add(self, other: Histogram) -> None:
        """Count what another one has counted."""
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def to_map(self) -> dict[str, Any]:
        """Return it for a reply."""
        return {"buckets": [*BOUNDS], "counts": [*self.counts], "sum": self.total}
