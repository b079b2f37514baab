"""Executes the retention of one open log, and says when the next one is due."""

from __future__ import annotations

from quothd.service.log_events import note
from quothd.topics.transactions import Transactions
from quothlog import Log
from quothlog.storage.clock import Clock
from quothwire.errors import QuothError

RETRY_US = 10_000_000
"""Retention that a full or failed disk keeps from being done wakes its topic no more often than this."""


class Retention:
    """Removes the records and staged batches that a topic need not keep. Owned by the topic."""

    def __init__(self, topic: str, log: Log, transactions: Transactions, clock: Clock) -> None:
        self._topic = topic
        self._log = log
        self._transactions = transactions
        self._clock = clock
        self._done = False

    def run(self) -> None:
        """Remove what may go now. A failure is logged, and the next call tries again."""
        self._done = False
        if self._log.failure is not None:
            return
        try:
            for (application, version), amount in self._transactions.expire():
                note(
                    "staged_expired", topic=self._topic, application=f"{application:016x}", version=version,
                    **amount._asdict(),
                )  # fmt: skip
            records, size = self._log.retain()
        except (OSError, QuothError) as problem:
            note("retention_delayed", topic=self._topic, problem=problem)
            return
        self._done = True
        if records:
            note("retained", topic=self._topic, records=records, bytes=size)

    def due(self) -> int | None:
        """Return the time of the next look, in microseconds; after a failure, not at once."""
        dues = [due for due in (self._log.retention_due(), self._transactions.due()) if due is not None]
        if not dues or self._done:
            return min(dues, default=None)
        return max(min(dues), self._clock.now() + RETRY_US)
