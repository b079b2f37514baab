"""The limits above and below which a metric raises an alarm."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from quothwire.errors import error
from quothwire.text.quantity import format_size, parse_size

MINUTE_S = 60.0


class FreeSpace(NamedTuple):
    """An amount of free disk space: bytes, or a share of the disk."""

    bytes: int = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> FreeSpace:
        """Read ``10%``, or a size like ``20GiB``. Raises `RequestError` ``bad_setting``."""
        if not text.strip().endswith("%"):
            return cls(bytes=parse_size(text))
        try:
            percent = float(text.strip().removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise error(
                "bad_setting", f"{text!r:.100} is no share of a disk", "0% to 100%, or a size like 20GiB"
            )
        return cls(share=percent / 100)

    def of(self, total: int) -> int:
        """Return the bytes of a disk of a size."""
        return self.bytes or int(self.share * total)

    def __str__(self) -> str:
        return format_size(self.bytes) if self.bytes else f"{100 * self.share:g} %"


NO_SPACE = FreeSpace()


@dataclass(frozen=True)
class Thresholds:
    """Limits of metrics. For each group: lag in seconds and in records, above which it is an alarm.

    max_lag, max_lag_records: critical. warn_lag: a warning. max_idle: seconds without a request of a group
    that has lag. min_free: below it the disk is critical. groups: the groups that count, as TOPIC/GROUP, None
    for all.
    """

    max_lag: float = inf
    warn_lag: float = inf
    max_lag_records: float = inf
    max_idle: float = inf
    min_free: FreeSpace = NO_SPACE
    groups: frozenset[str] | None = None


STANDARD = Thresholds(warn_lag=5 * MINUTE_S, max_idle=7 * 86_400.0)
"""What a page shows without any configuration: a warning is worth a look, and nothing wakes a person."""
