"""The retention of one open log: done when it is due, and when to look again."""

from __future__ import annotations

import time

from quothd.logbook import note
from quothlog import Log
from quothwire.errors import QuothError

RETRY_US = 10_000_000
"""Retention that a full or failed disk keeps from being done wakes its topic no more often than this."""


class Retention:
    """Removes what a topic need not keep. Owned by its keeper."""

    def __init__(self, topic: str, log: Log) -> None:
        self._topic = topic
        self._log = log
        self._done = False

    def run(self) -> None:
        """Remove what may go now. What cannot be done now is tried again."""
        self._done = False
        if self._log.failure is not None:
            return
        try:
            records, size = self._log.retain()
        except (OSError, QuothError) as problem:
            note("retention_delayed", topic=self._topic, problem=problem)
            return
        self._done = True
        if records:
            note("retained", topic=self._topic, records=records, bytes=size)

    def due(self) -> int | None:
        """When to look again, by the clock in microseconds; once it could not be done, not at once."""
        due = self._log.retention_due()
        if due is None or self._done:
            return due
        return max(due, time.time_ns() // 1_000 + RETRY_US)
