"""The result of the import of one log, as a value and as the row of a state file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from quothlog.importing.source import ImportFinding, counted

FINDINGS_MAX = 100
"""Findings of the reading of one log that are kept: its report is held in memory, and in two files."""


@dataclass
class ImportReport:
    """The result of one log.

    topic, original: as a `LogSource` has them. records, bytes: of all values. first, last: pointers, 0 for
    none. changed: the number of records that have another pointer than in the source. findings: in order,
    bounded by `BoundedFindings`.
    """

    topic: str
    original: str = ""
    records: int = 0
    bytes: int = 0
    first: int = 0
    last: int = 0
    changed: int = 0
    findings: list[ImportFinding] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        """True if records were left out, or may have been."""
        return any(one.is_damage for one in self.findings)

    def to_row(self) -> dict[str, Any]:
        """Return it as a value of JSON."""
        return asdict(self)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> ImportReport:
        """Make it from such a value. Raises TypeError or ValueError for any other one."""
        return cls(**{**row, "findings": [ImportFinding(**one) for one in row["findings"]]})


class BoundedFindings:
    """Keeps the first `FINDINGS_MAX` findings, and counts the others."""

    def __init__(self) -> None:
        self._kept: list[ImportFinding] = []
        self._more = self._damage = 0

    def add(self, finding: ImportFinding) -> None:
        """Take in the next one."""
        if len(self._kept) < FINDINGS_MAX:
            self._kept.append(finding)
        else:
            self._more += 1
            self._damage += finding.is_damage

    def all(self) -> list[ImportFinding]:
        """Return those that are kept, and one for the others, damage if any of them is."""
        if not self._more:
            return [*self._kept]
        text = f"{counted(self._more, 'more finding')}, {self._damage} of them damage"
        return [*self._kept, ImportFinding(text, is_damage=self._damage > 0)]
