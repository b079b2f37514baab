"""What opening a log found and did, for whoever has to know of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RecoveryReport:
    """What opening a log found and did."""

    strays: list[str] = field(default_factory=list)
    """Names of files that are not a log's: left alone."""
    set_aside: list[str] = field(default_factory=list)
    """Names of files that this opening set bytes aside in."""
    strays_set_aside: list[str] = field(default_factory=list)
    """Names under which this opening set aside files that were called like segments and could not be any."""
    set_aside_bytes: int = 0
    """Bytes of all files that lie there because bytes were ever set aside, by this opening or before it."""
    torn_bytes: int = 0
    zero_bytes: int = 0
    damaged_bytes: int = 0
    """Bytes inside the last segment that are no batch, with whole batches behind them."""
    lost_records: int = 0
    """Records that were synced and are gone from the end of the last segment, as its index proves."""
    lost_after: int = 0
    """The last pointer in front of the lost records."""
    lost_until: int = 0
    """The highest pointer of the lost records, 0 if none are lost."""
    rebuilt: list[str] = field(default_factory=list)
    """Names of segments whose footer or index this opening made anew: no record was missing."""
    scanned_bytes: int = 0

    def counters(self) -> dict[str, int]:
        """How much was found to be wrong."""
        return {
            "torn_bytes": self.torn_bytes,
            "damaged_bytes": self.damaged_bytes,
            "lost_records": self.lost_records,
        }

    def gauges(self) -> dict[str, int]:
        """What lies there that somebody should know of."""
        return {"set_aside_bytes": self.set_aside_bytes, "stray_files": len(self.strays)}
