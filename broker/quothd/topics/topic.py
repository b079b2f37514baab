"""One open topic: executes its requests and its periodic maintenance on its log.

The thread that has its token calls `handle` with what has arrived and `tick` when `next_due` has come, and
gets the events for the front end. What would take long leaves through `Services` and comes back as an item.

Publishes that arrive together are appended together. An acknowledgement is an event once the level that was
asked for is reached and the record can be read: at once for `written`, after a shared fsync for `synced` and
for pointers beyond the log's horizon.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from quothd.config.config import Config
from quothd.groups.groups import TopicGroups
from quothd.requests.events import (
    Close,
    Closed,
    CommitStepDone,
    DeadLetterDone,
    Event,
    EventList,
    Failed,
    Idle,
    Item,
    Opened,
    Progress,
    Query,
    ReadDone,
    SyncDone,
)
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothd.topics.changes import Changes
from quothd.topics.failures import broken_off, log_failure
from quothd.topics.fetch import TopicReads
from quothd.topics.metadata import TopicMetadata
from quothd.topics.publishing import TopicPublishes
from quothd.topics.syncing import SHARE_FULL, Syncing
from quothd.topics.transactions import Transactions
from quothlog import Log
from quothlog.appender import SyncRequest
from quothlog.file_format import LogPosition
from quothlog.storage.clock import Clock
from quothlog.transactions.commit import Commit
from quothwire.errors import QuothError
from quothwire.protocol.messages import Operation, Reply

RANGES = (Operation.ADVANCE, Operation.SPLIT, Operation.COUNT)
READING = (Operation.FETCH, *RANGES)
ANSWER_BYTES_MAX = 2**20
"""`handle` returns once its answers are that large: a burst of large ones would fill the memory."""


class Services(Protocol):
    """The threads that work for a topic. Their results come back as items."""

    def sync(self, request: SyncRequest) -> None:
        """Execute an fsync; `SyncDone` comes back."""

    def read(self, request: PendingRequest, query: Query) -> None:
        """Execute a query for a request; `ReadDone` comes back."""

    def step(self, commit: Commit, take: Callable[[], None]) -> None:
        """Take a step of a commit; `CommitStepDone` comes back. Raises ``busy`` without a thread for it."""


class Topic:
    """One open log and the requests for it.

    metadata: what is known of the topic apart from its log. reads: its fetches and queries. groups: its
    consumer groups. ended: its last event has been `Closed`, `Deleted` or `Failed`.
    """

    def __init__(
        self, log: Log, metadata: TopicMetadata, config: Config, services: Services, clock: Clock
    ) -> None:
        self.metadata = metadata
        self.ended = False
        self._name = metadata.topic.name
        self._log = log
        self._appender = log.appender
        self._config = config
        self._queue: deque[Item] = deque()
        self._events = EventList()
        self._visible: LogPosition | None = None
        self._synced: LogPosition | None = None
        self._now = self._last_used = self._last_check = clock.monotonic()
        self._ending: Callable[[], None] | None = None
        self._failure: QuothError | None = None
        self._syncing = Syncing(self._name, log, config, services.sync)
        self.reads = TopicReads(log, services.read, self._events)
        ways = services.sync, services.read, self._events, clock
        self.groups = TopicGroups(log, metadata, config, *ways)
        self._transactions = Transactions(log, services.step, self._events)
        bindings = self._transactions.bindings
        self._publishing = TopicPublishes(log, metadata, self._syncing, self._events, bindings, clock)
        staged = self._transactions.log_transactions
        about = self._events, staged, clock, self.groups
        self._changes = Changes(log, metadata, config, *about)

    # -- for the thread that has the token ------------------------------------------------------------------

    def begin(self) -> None:
        """Execute the retention that became due while the log was closed; reports the state of the log."""
        self._changes.retain()
        self._changes.inform()
        self._events.add(Opened())

    def handle(self, items: Iterable[Item], now: float) -> list[Event]:
        """Execute items in their order; returns the events. A defect ends the topic with `Failed`."""
        self._now = now
        self._queue.extend(items)
        self._run(self._execute)
        return self._events.take()

    def tick(self, now: float) -> list[Event]:
        """Execute the maintenance that is due: fsync, retention, reports; returns the events."""
        self._now = now
        if self._ending is None:
            self._run(self._maintain)
        return self._events.take()

    @property
    def next_due(self) -> float:
        """The monotonic time at which to call `tick`; infinity once the topic ends."""
        if self._ending is not None or self._failure is not None:
            return math.inf
        due = min(self._last_check + self._config.check_interval, self._syncing.next_due())
        if self.groups.is_used:
            due = min(due, self.groups.next_due())
        if not self._is_at_work:
            due = min(due, self._last_used + self._config.worker_timeout)
        return due

    @property
    def _is_at_work(self) -> bool:
        """True while something has to come back to the topic."""
        return bool(self._events.unanswered) or (self.groups.is_used and self.groups.is_at_work)

    @property
    def has_more(self) -> bool:
        """True if `handle` has left items that it can execute without another one."""
        return bool(self._queue) and not self.ended and self._failure is None

    def is_sync_alone_due(self, now: float) -> bool:
        """True if `tick` would only give a request to the fsync thread."""
        return now < min(self._last_check + self._config.check_interval, self.groups.letters_due)

    @property
    def is_ready(self) -> bool:
        """True if `handle` begins with what it is given, and a publish need not wait for an fsync."""
        return self._ending is None and not self._queue and self._syncing.share <= SHARE_FULL

    def fits(self, size: int) -> bool:
        """True if the active segment certainly has room for so many bytes."""
        return self._publishing.fits(size)

    # -- items ----------------------------------------------------------------------------------------------

    def _execute(self) -> None:
        queue, events = self._queue, self._events
        while queue and not self.ended and events.answer_bytes < ANSWER_BYTES_MAX:
            item = queue[0]
            if isinstance(item, PendingRequest):
                is_appended = item.operation is Operation.PUBLISH and not self._appender.is_publishing
                if is_appended or self._transactions.holds(item):
                    queue.popleft()
                    events.unanswered[item] = None
                    if is_appended:
                        self._publishing.waiting.append(item)
                    continue
            self._append()  # if this raises, the item is still in the queue
            self._take(queue.popleft())
        self._append()
        if self._ending is not None:
            self._end_if_alone()
        elif not self.ended:
            self._settle()

    def _settle(self) -> None:
        """Begin a due fsync, answer the requests that one has reached, report the visible records."""
        self._syncing.begin_if_due(self._now)
        if self._syncing.waiting:
            self._syncing.answer_reached(self._events)
        if self.groups.is_used:
            self.groups.settle(self._now)
        visible, synced = self._appender.visible, self._appender.synced
        if visible is not (before := self._visible) or synced is not self._synced:
            self._visible, self._synced = visible, synced
            self._events.add(Progress(visible.pointer, visible.ordinal, synced, visible is not before))

    def _take(self, item: Item) -> None:
        match item:
            case PendingRequest():
                self._events.unanswered[item] = None
                if item.operation is not Operation.DESCRIBE:
                    self._last_used = self._now
                if item.operation not in READING and item.operation not in TopicGroups.OPERATIONS:
                    self._publishing.room = 0
                self._answer(item, self._act)
            case SyncDone():
                self._events.measures.syncs.append(item.seconds)
                if not self.groups.finish_sync(item, self._now):
                    self._syncing.finish(item, self._now)
                    self._take_back_held()
            case ReadDone(request=request):
                reads = self.groups if request.operation is Operation.GROUP_FETCH else self.reads
                self._answer(request, lambda _: reads.go_on(item, self._now))
                self._take_back(self.groups.take_waiting())
            case DeadLetterDone():
                self.groups.finish_letter(item, self._now)
            case CommitStepDone():
                if (done := self._transactions.go_on(item)) is not None:
                    self._publishing.acknowledge(*done, "synced")
                    self._take_back_held()
            case Close():
                self._ending = self._close
            case Config():
                self._config = self._syncing.config = item
                self._changes.configure(item)
                self.groups.configure(item)
                self._publishing.room = 0

    def _act(self, request: PendingRequest) -> Reply | None:
        """Execute a request that is no publish; returns the reply, None if it is an event, now or later."""
        operation = request.operation
        if operation in RANGES:
            return self.reads.query(request)
        if operation in Changes.OPERATIONS:
            return self._changes.handle(request)
        if operation in Transactions.OPERATIONS:
            return self._transactions.handle(request)
        match operation:
            case Operation.FETCH:
                self.reads.fetch(request, self._now)
            case Operation.PUBLISH_STAGED:
                self._publish_staged(request)
            case Operation.DELETE:
                self._delete(request)
            case _:
                self.groups.handle(request, self._now)
        return None

    def _answer(self, request: PendingRequest, action: Callable[[PendingRequest], Reply | None]) -> None:
        """Execute an action. Answers with its reply, if it returns one, or with its error."""
        try:
            reply = action(request)
            if reply is not None:
                self._events.answer(request, request.responder.reply(reply))
        except QuothError as problem:
            self._publishing.refuse(request, problem)
        except OSError as problem:
            self._publishing.refuse(request, log_failure(problem, self._name, self._log.directory))

    # -- appending ------------------------------------------------------------------------------------------

    def _publish_staged(self, request: PendingRequest) -> None:
        if (appended := self._transactions.publish(request)) is not None:
            self._publishing.acknowledge(request, appended, "synced")
            self._syncing.measure(self._now)

    def _append(self) -> None:
        """Append the publishes that were taken from the queue."""
        if self._publishing.waiting:
            self._last_used = self._now
            self.reads.last_write = self._now, self._publishing.append(self._now)

    def _take_back_held(self) -> None:
        """Put the requests that waited for a commit in front of all others, behind its own answer."""
        self._syncing.answer_reached(self._events)
        self._take_back(self._transactions.release())

    def _take_back(self, requests: Sequence[PendingRequest]) -> None:
        """Put requests that have waited in front of all others."""
        for request in reversed(requests):
            del self._events.unanswered[request]
            self._queue.appendleft(request)

    # -- maintenance ----------------------------------------------------------------------------------------

    def _maintain(self) -> None:
        now = self._now
        if now - self._last_check >= self._config.check_interval:
            self._last_check = now
            self.groups.compact()
            self._changes.retain()
            self._changes.inform()
        self.groups.tick(now)
        if now - self._last_used >= self._config.worker_timeout and not self._is_at_work:
            self._last_used = now
            self._events.add(Idle())
        self._settle()

    # -- the end --------------------------------------------------------------------------------------------

    def _end_if_alone(self) -> None:
        """End once no other thread works on the log."""
        if not self._is_shared and self._ending is not None:
            ending, self._ending = self._ending, None
            ending()

    @property
    def _is_shared(self) -> bool:
        """True while another thread works on the log, or on that of the groups."""
        return self._syncing.is_running or self._transactions.is_at_work or self.groups.is_syncing

    def _delete(self, request: PendingRequest) -> None:
        """Delete the topic. The front end gives no other request behind this one."""
        self._changes.check_delete(request)

        def delete(_: PendingRequest) -> None:
            self._changes.delete(request)
            self.groups.discard()
            self.ended = True

        self._ending = lambda: self._answer(request, delete)

    def _close(self) -> None:
        """Close the log: everything synced, every acknowledgement an event."""
        self.groups.close(self._now)
        self._transactions.bindings.close()
        if self._log.failure is None:
            self._log.sync()
        self._settle()
        self._changes.inform()
        counters = self._changes.info().counters
        self._log.close()
        self.metadata.failure, self.metadata.counted = self._log.failure, counters
        self._events.add(Closed())
        self.ended = True

    def _run(self, work: Callable[[], None]) -> None:
        """Call `work`. If it raises, the topic fails as soon as no other thread works on the log."""
        if self.ended:
            return
        try:
            if self._failure is None:
                work()
            else:
                self._take_results()
        except Exception as problem:
            self._failure = broken_off(log_failure(problem, self._name, self._log.directory))
        if self._failure is not None and not self._is_shared:
            self._fail(self._failure)

    def _take_results(self) -> None:
        """Take what other threads have done, and leave the requests in the queue."""
        for item in [*self._queue]:
            if isinstance(item, SyncDone | CommitStepDone):
                self._queue.remove(item)
                self._take(item)

    def _fail(self, problem: QuothError) -> None:
        """Close what can be closed in any state; the requests without an answer leave with the problem."""
        self.ended = True
        try:
            self.metadata.counted = self._changes.info().counters
            self.groups.discard()
            self._log.close()
        except Exception as also:
            note("close_failed", also, topic=self._name)
        self.metadata.failure = self._log.failure
        waiting = (item for item in self._queue if isinstance(item, PendingRequest))
        self._events.add(Failed(problem, [*self._events.unanswered, *waiting]))
        self._events.unanswered.clear()
