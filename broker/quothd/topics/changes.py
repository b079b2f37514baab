"""Executes the requests that describe or change a topic: describe, update, trim, roll, delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from quothd.config.config import Config
from quothd.datadir import catalog
from quothd.requests.event_list import EventList
from quothd.requests.events import Deleted, Informed
from quothd.requests.pending_request import PendingRequest
from quothd.topics.metadata import TopicMetadata
from quothd.topics.retention import Retention
from quothd.topics.transactions import Transactions
from quothlog import Log, LogInfo
from quothlog.datadir.topic_file import TopicFile
from quothlog.storage.filesystem import NotDurable
from quothwire.errors import error
from quothwire.protocol.messages import Operation, Trimmed


class Changes:
    """The operations that describe or change the topic itself. Owned by the topic.

    actions: the method for each operation.
    """

    def __init__(
        self,
        log: Log,
        metadata: TopicMetadata,
        config: Config,
        events: EventList,
        transactions: Transactions,
        retention: Retention,
    ) -> None:
        self.config = config
        self.actions: dict[Operation, Callable[[PendingRequest], None]] = {
            Operation.DESCRIBE: self._describe,
            Operation.CREATE: self._describe,
            Operation.UPDATE: self._update,
            Operation.TRIM: self._trim,
            Operation.ROLL: self._roll,
        }
        self._log = log
        self._metadata = metadata
        self._events = events
        self._transactions = transactions
        self._retention = retention

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        self.config = config
        metadata = self._metadata
        self._log.options = config.log_options(metadata.topic.settings, keep_all=bool(metadata.problem))

    def info(self) -> LogInfo:
        """The state of the log."""
        info = self._log.info()
        gauges = {**info.gauges, "staged_bytes": self._transactions.staged_bytes}
        return self._metadata.informed(replace(info, gauges=gauges))

    def inform(self) -> None:
        """Report the state of the log to the front end."""
        self._events.add(Informed(self.info(), self._retention.due()))

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

    def _describe(self, request: PendingRequest) -> None:
        request.decode()
        self._metadata.failure = self._log.failure
        reply = self._metadata.describe(self.info())
        self._events.answer(request, request.responder.reply(reply))

    def _update(self, request: PendingRequest) -> None:
        metadata = self._metadata
        settings = metadata.topic.settings.changed(request.decode().settings)
        topic = TopicFile(metadata.topic.name, metadata.topic.log_id, settings)
        assert metadata.path is not None
        catalog.save(metadata.path, topic, self._log.filesystem)
        metadata.topic, metadata.problem = topic, ""
        self.configure(self.config)
        self._retention.run()
        self.inform()
        self._describe(request)

    def _trim(self, request: PendingRequest) -> None:
        records, size = self._log.trim(request.decode().before)
        reply = Trimmed(records, size, self.info().first)
        self._events.answer(request, request.responder.reply(reply))
        self.inform()

    def _roll(self, request: PendingRequest) -> None:
        request.decode()
        self._log.roll()
        self._describe(request)
