"""The findings of an opening."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RecoveryReport:
    """All that an opening has found and done."""

    strays: list[str] = field(default_factory=list)
    """Names of files that are not a log's: left alone."""
    set_aside: list[str] = field(default_factory=list)
    """Names of files in which this opening has quarantined bytes."""
    strays_set_aside: list[str] = field(default_factory=list)
    """Names under which this opening has quarantined files that were named like segments and are none."""
    quarantined_bytes: int = 0
    """Bytes of all quarantined files, of this opening and of earlier ones."""
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
    """Names of segments whose footer or index this opening has rebuilt: no record was missing."""
    scanned_bytes: int = 0

    def counters(self) -> dict[str, int]:
        """Return the amounts of damage, by name."""
        return {
            "torn_bytes": self.torn_bytes,
            "damaged_bytes": self.damaged_bytes,
            "lost_records": self.lost_records,
        }

    def gauges(self) -> dict[str, int]:
        """Return the amounts of files that a person should look at, by name."""
        return {"quarantined_bytes": self.quarantined_bytes, "unknown_files": len(self.strays)}
