"""Counts what a topic does between two reports to the front end."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from quothd.metrics.histogram import Histogram


class Traffic(NamedTuple):
    """Records and bytes of stored batches, headers included, that came in and went out."""

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0

    def plus(self, other: Traffic) -> Traffic:
        """Return the sum of two amounts."""
        return Traffic(*map(sum, zip(self, other, strict=True)))


NO_TRAFFIC = Traffic()
DURATIONS_MAX = 1_000
"""Durations of a topic that are not counted in buckets yet: a list takes less time than the buckets."""


class Measures:
    """Amounts and durations of an open topic since its last report. Owned by the topic.

    refused: the number of errors by code. appends: durations of the writes of bursts of publishes, checks
    included; call `fold` once there are `DURATIONS_MAX` of them. syncs: durations of fsyncs.
    """

    __slots__ = (
        "_folded", "appends", "bytes_in", "bytes_out", "records_in", "records_out", "refused", "syncs"
    )  # fmt: skip

    def __init__(self) -> None:
        self.records_in = self.bytes_in = self.records_out = self.bytes_out = 0
        self.refused: Counter[str] = Counter()
        self.appends: list[float] = []
        self.syncs: list[float] = []
        self._folded: dict[str, Histogram] = {}

    def __bool__(self) -> bool:
        amounts = self.records_in or self.bytes_in or self.records_out or self.refused
        return bool(amounts or self.appends or self.syncs or self._folded)

    def fold(self) -> dict[str, Histogram]:
        """Count the durations, so that they take no more memory; returns them by name."""
        for name, durations in (("append", self.appends), ("fsync", self.syncs)):
            if durations:
                self._folded.setdefault(name, Histogram()).observe(durations)
                durations.clear()
        return self._folded

    @property
    def traffic(self) -> Traffic:
        """The records and bytes."""
        return Traffic(self.records_in, self.bytes_in, self.records_out, self.bytes_out)
