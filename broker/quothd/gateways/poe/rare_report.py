"""Reports to the broker's log that come from clients, and so have to be rare."""

from __future__ import annotations

import time
from typing import Any

from quothwire.service.parent_process import report

PAUSE_S = 10.0


class RareReport:
    """Reports an event once in ten seconds at most, and how often it came since the last report."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._count = 0
        self._due = 0.0

    def put(self, **fields: Any) -> None:
        """Count an event, and report it if a report is due."""
        self._count += 1
        now = time.monotonic()
        if now >= self._due:
            report(self._event, count=self._count, **fields)
            self._count, self._due = 0, now + PAUSE_S
