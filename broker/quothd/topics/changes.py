"""Describes and changes a topic: describe, update, trim, roll, delete, and retention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from quothd.config.config import Config
from quothd.datadir import catalog
from quothd.groups.groups import TopicGroups
from quothd.requests.events import Deleted, EventList, Informed
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothd.topics.metadata import TopicMetadata
from quothlog import Log, LogInfo
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import NotDurable
from quothlog.transactions.transactions import LogTransactions
from quothwire.errors import QuothError, error
from quothwire.protocol.messages import Operation, Reply, TopicInfo, Trimmed

RETRY_US = 10_000_000
"""Retention that a full or failed disk keeps from being done wakes its topic no more often than this."""


class Changes:
    """The operations that describe or change the topic itself. Owned by the topic.

    groups: of the topic, for what they have finished.
    """

    def __init__(
        self,
        log: Log,
        metadata: TopicMetadata,
        config: Config,
        events: EventList,
        transactions: LogTransactions,
        clock: Clock,
        groups: TopicGroups,
    ) -> None:
        self.config = config
        self._log = log
        self._metadata = metadata
        self._events = events
        self._transactions = transactions
        self._clock = clock
        self._groups = groups
        self._is_retained = False

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        self.config = config
        self._log.options = config.log_options(self._metadata.topic.settings)

    def handle(self, request: PendingRequest) -> Reply:
        """Execute a request; returns the reply. Raises `QuothError`, or OSError."""
        return self._ACTIONS[request.operation](self, request)

    def info(self) -> LogInfo:
        """The state of the log, with counters since the start of this process."""
        info, before = self._log.info(), self._metadata.counted
        counters = {name: before.get(name, 0) + number for name, number in info.counters.items()}
        gauges = {
            **info.gauges,
            "staged_bytes": self._transactions.staged_bytes,
            "dead_letters_delayed": self._groups.delayed,
        }
        return replace(info, counters=counters, gauges=gauges)

    def inform(self) -> None:
        """Report the state of the log to the front end."""
        self._metadata.failure = self._log.failure
        measures, groups = self._events.take_measures(), self._groups.summaries()
        self._events.add(Informed(self.info(), self.retention_due(), measures, groups))

    def retain(self) -> None:
        """Remove the records and staged batches that may go. Logs a failure; the next call tries again."""
        self._is_retained = False
        if self._log.failure is not None:
            return
        topic = self._metadata.topic.name
        try:
            for (application, version), amount in self._transactions.expire():
                about = {"application": f"{application:016x}", "version": version, **amount._asdict()}
                note("staged_expired", topic=topic, **about)
            is_bound = self._metadata.topic.settings.retention == "until_acked"
            records, size = self._log.retain(self._groups.finished() if is_bound else 0)
        except (OSError, QuothError) as problem:
            note("retention_delayed", topic=topic, problem=problem)
            return
        self._is_retained = True
        if records:
            note("retained", topic=topic, records=records, bytes=size)

    def retention_due(self) -> float:
        """Return the time of the next `retain`, in microseconds: infinite for none.

        After a failure, not at once.
        """
        dues = [due for due in (self._log.retention_due(), self._transactions.due()) if due is not None]
        if not dues or self._is_retained:
            return min(dues, default=math.inf)
        return max(min(dues), self._clock.now() + RETRY_US)

    def check_delete(self, request: PendingRequest) -> None:
        """Raise ``unknown_topic`` if the request is about an earlier topic of this name."""
        log_id = request.decode().log
        if log_id not in (0, self._log.log_id):
            text = f"topic {self._metadata.topic.name!r} is another one now, with another log"
            raise error("unknown_topic", text)

    def delete(self, request: PendingRequest) -> None:
        """Delete the topic. No fsync and no commit may be under way.

        Raises OSError; after `NotDurable` the log takes no more writes, which the next start might lose.
        """
        info = self.info()
        assert self._metadata.path is not None
        try:
            retired = catalog.retire(self._metadata.path, self._log.filesystem)
        except NotDurable as problem:
            self._log.appender.write_failure.fail(problem)
            raise
        self._log.discard()
        catalog.remove(retired)
        removed = Trimmed(info.end_ordinal - info.first_ordinal, info.bytes, 0)
        del self._events.unanswered[request]
        self._events.add(Deleted(request, request.responder.reply(removed)))

    def _describe(self, request: PendingRequest) -> TopicInfo:
        request.decode()
        self._metadata.failure = self._log.failure
        return self._metadata.describe(self.info())

    def _update(self, request: PendingRequest) -> TopicInfo:
        metadata = self._metadata
        settings = metadata.topic.settings.changed(request.decode().settings)
        topic = replace(metadata.topic, settings=settings)
        assert metadata.path is not None
        catalog.save(metadata.path, topic, self._log.filesystem)
        metadata.topic, metadata.problem = topic, ""
        self.configure(self.config)
        self.retain()
        self.inform()
        return self._describe(request)

    def _trim(self, request: PendingRequest) -> Trimmed:
        records, size = self._log.trim(request.decode().before)
        self.inform()
        return Trimmed(records, size, self.info().first)

    def _roll(self, request: PendingRequest) -> TopicInfo:
        request.decode()
        self._log.roll()
        return self._describe(request)

    _ACTIONS: ClassVar[dict[Operation, Callable[[Changes, PendingRequest], Reply]]] = {
        Operation.DESCRIBE: _describe,
        Operation.CREATE: _describe,
        Operation.UPDATE: _update,
        Operation.TRIM: _trim,
        Operation.ROLL: _roll,
    }
    OPERATIONS = frozenset(_ACTIONS)
