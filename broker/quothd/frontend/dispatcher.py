"""Answers each request at once, gives it to its topic, or keeps it until the topic is open.

It has no socket. Requests come from the front end, events from the topics, frames leave through `send`. Every
accepted request gets exactly one answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from quothd.access.access import Access
from quothd.access.clients_file import ClientTable
from quothd.access.quota import Quota
from quothd.config.config import Config
from quothd.connections.connection import Connection
from quothd.frontend.registry import Registry, RegistryEntry, check_absent
from quothd.frontend.schedule import PendingFetches, Schedule
from quothd.frontend.scheduler import Scheduler
from quothd.frontend.topic_states import State, Transition
from quothd.requests.dead_letter import publish_of
from quothd.requests.events import (
    Answered,
    Brought,
    Closed,
    DeadLetter,
    Deleted,
    DiskLow,
    Event,
    Failed,
    GroupReady,
    Idle,
    Informed,
    Opened,
    Opening,
    Progress,
    Released,
    Waiting,
)
from quothd.requests.pending_request import PendingRequest
from quothd.service.descriptors import descriptors_max, topics_that_fit
from quothd.service.log_events import note
from quothd.threads.executor import CAN_RUN, Executor, Shared
from quothd.topics.changes import RETRY_US
from quothlog.datadir.topic_folder import TopicFolder
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.messages import FETCH_BYTES_MAX, Operation

Send = Callable[..., None]
"""Sends frames as `ReplyQueue.send` does."""
Announce = Callable[[str, int], None]

_WRITES = (Operation.PUBLISH, Operation.STAGE, Operation.PUBLISH_STAGED)


def _active_max(config: Config) -> int:
    """Return how many topics may be active at once."""
    return topics_that_fit(config.workers_max, descriptors_max())


def _check_entry(entry: RegistryEntry, request: PendingRequest, config: Config, access: Access) -> None:
    """Raise why a topic that exists takes no such request now.

    The bytes of a topic are counted when it reports them, once in `check_interval`.
    """
    if entry.deletion is not None:
        raise error("busy", f"topic {request.topic!r} is being deleted")
    if request.operation is Operation.CREATE:
        raise error("topic_exists", f"topic {request.topic!r} exists")
    if entry.outstanding >= config.topic_requests_max:
        raise error("busy", f"{entry.outstanding} requests of topic {request.topic!r} are in work")
    if request.operation in _WRITES and (entry.metadata.topic.owner or config.store_bytes_max):
        access.ledger.check(entry.metadata.topic.owner, Quota.STORE_BYTES)


class RequestsInWork:
    """The requests in work, within the limits of the broker and the quotas of their clients.

    finished: takes the operation of each that is not in work any more, and the seconds that it was.
    """

    __slots__ = ("_access", "_finished", "bytes", "config", "requests")

    def __init__(self, config: Config, access: Access, finished: list[tuple[Operation, float]]) -> None:
        self.config = config
        self._access = access
        self._finished = finished
        self.requests = self.bytes = 0

    @property
    def reply_bytes_due(self) -> int:
        """The most that the replies to them, and to one more, may take."""
        return (1 + self.requests) * FETCH_BYTES_MAX

    def check(self, request: PendingRequest) -> None:
        """Raise ``busy`` if there is no room for a request."""
        if self.bytes + request.size > self.config.request_bytes_max:
            raise error("busy", f"requests of {self.bytes} bytes are in work")
        if self.requests >= self.config.requests_max:
            raise error("busy", f"{self.requests} requests are in work")
        if request.client is not None:
            self._access.ledger.check(request.client.name, Quota.REQUESTS)
            self._access.ledger.check(request.client.name, Quota.REQUEST_BYTES, request.size)

    def add(self, request: PendingRequest, now: float) -> None:
        """Count a request from now on. Raises ``busy`` if there is no room for it."""
        size = self.bytes + request.size
        if request.client is not None:
            self.check(request)
            self._access.ledger.count(request.client.name, Quota.REQUESTS)
            self._access.ledger.count(request.client.name, Quota.REQUEST_BYTES, request.size)
        elif size > self.config.request_bytes_max or self.requests >= self.config.requests_max:
            self.check(request)
        self.requests += 1
        self.bytes = size
        request.since = now

    def remove(self, request: PendingRequest, now: float) -> PendingRequest:
        """Count a request no more; returns it."""
        self._finished.append((request.operation, now - request.since))
        self.requests -= 1
        self.bytes -= request.size
        if request.client is not None:
            self._access.ledger.release(request.client.name, Quota.REQUESTS)
            self._access.ledger.release(request.client.name, Quota.REQUEST_BYTES, request.size)
        return request


class Dispatcher:
    """The topics of a broker and the requests for them. Owned by the front end's thread.

    access: what the clients may do. in_work: unanswered requests. disk_low_at: when the disk was full last.
    """

    def __init__(
        self,
        config: Config,
        folders: Iterable[TopicFolder],
        shared: Shared,
        send: Send,
        announce: Announce,
        access: Access | None = None,
    ) -> None:
        self.access = access or Access(config)
        self.registry = Registry(folders, self.access.ledger, shared.clock.now())
        self.pending_fetches = PendingFetches(self.access)
        self.config = config
        self.shared = shared
        self._send_frames = send
        self._announce = announce
        self.scheduler = Scheduler(_active_max(config), lambda topic: Executor(topic, self.config, shared))
        self._maintenance: Schedule[RegistryEntry] = Schedule()
        self._retention: Schedule[RegistryEntry] = Schedule()
        self._ready: dict[RegistryEntry, None] = {}
        self.in_work = RequestsInWork(config, self.access, self.registry.metrics.finished)
        self._is_stopping, self.disk_low_at = False, -math.inf
        self.scheduler.open_all(self.registry)

    def configure(self, config: Config, clients: ClientTable | None) -> None:
        """Apply another configuration, and other clients; each open topic does so after what it is at.

        Fetches that wait and are not allowed any more are refused.
        """
        self.access.configure(config, clients)
        for request, problem in self.access.revoked(self.pending_fetches):
            self._refuse(self.pending_fetches.take([request]), problem)
        if config.staged_max_age != self.config.staged_max_age:
            for entry in filter(RegistryEntry.has_staged, self.registry):
                self._retention.plan(entry, self.shared.clock.now())  # they may expire earlier now
        self.config = self.in_work.config = config
        self.scheduler.configure(_active_max(config), config)

    # -- requests -------------------------------------------------------------------------------------------

    def submit(self, request: PendingRequest, now: float) -> None:
        """Accept a request for a topic. Raises `QuothError` if it is refused."""
        if self._is_stopping:
            raise error("stopping", "the broker is shutting down")
        entry = self.registry.entries.get(request.topic)
        if entry is None:
            if request.operation is Operation.FETCH:
                check_absent(request, now)
                self._keep(request)
                return
            self.in_work.check(request)
            self.scheduler.check_creation()
            entry = self.registry.create(request, self.config, now)
        else:
            _check_entry(entry, request, self.config, self.access)
        is_asleep = entry.state is State.HIBERNATING
        if is_asleep and entry.needs_no_opening(request, self.config, self.shared.clock):
            if request.deadline:
                self._keep(request)
            else:
                answer = entry.answer_for(request)
                self._send(answer, request.connection.hold_large(answer), request.connection)
            return
        if entry.state is State.OPENING:
            entry.check_opening(request, now, self.config.recovering_after)
        self.in_work.add(request, now)
        entry.outstanding += 1
        if request.operation is Operation.DELETE:
            entry.deletion = request
            self._delete_if_alone(entry, now)
        else:
            self._give(entry, request, now)

    def _give(self, entry: RegistryEntry, request: PendingRequest, now: float) -> None:
        """Give a request to its topic, or queue it until the topic is open."""
        entry.used = now
        if entry.state is State.OPEN and entry.executor is not None and not entry.makes_way:
            entry.in_work += 1
            entry.executor.given.append(request)
            self._ready[entry] = None
        else:
            entry.queued.append(request)
            self.scheduler.need(entry, now)

    def _delete_if_alone(self, entry: RegistryEntry, now: float) -> None:
        """Give a deletion to its topic once no other request is left."""
        if entry.deletion is not None and entry.outstanding == 1 and entry.deletion not in entry.queued:
            self._give(entry, entry.deletion, now)

    def _keep(self, request: PendingRequest) -> None:
        """Let a fetch wait until there is something new, or until its deadline."""
        try:
            self.pending_fetches.add(request, self.config)
        except QuothError as problem:
            self._refuse([request], problem)

    def run(self, until: float) -> bool:
        """Let the topics handle items until the monotonic clock says `until`; true if there may be more.

        A topic stays ready while it has items: another thread may become the front end in the middle.
        """
        is_busy = False
        for entry in [*self._ready]:
            executor, now = entry.executor, self.shared.clock.monotonic()
            events = executor.run(now) if executor is not None else ()
            if executor is None or not (executor.given and executor.holder in CAN_RUN):
                self._ready.pop(entry, None)
            if executor is not None and events:
                is_busy = True
                self.take(executor, events, now := self.shared.clock.monotonic())
                if now >= until:
                    break
        return is_busy

    def _send(self, frames: Frames, held: int = 0, connection: Connection | None = None) -> None:
        """Send an answer to its client, or give that of a dead letter to the topic that has made it."""
        if frames[0]:
            self._send_frames(frames, held, connection)
        elif (entry := self.registry.give_outcome(frames)) is not None:
            self._ready[entry] = None

    # -- events ---------------------------------------------------------------------------------------------

    def take(self, executor: Executor, events: Sequence[Event], now: float) -> None:
        """Take events of a topic; those of an executor that was replaced count as answers only."""
        found = self.registry.entries.get(executor.thread.name)
        entry = found if found is not None and found.executor is executor else None
        for event in events:
            if isinstance(event, Answered):
                self._send(event.frames, event.held, event.request.connection)
                self._done(entry, event.request, now)
            elif isinstance(event, Waiting):
                self._done(entry, event.request, now)
                self._keep(event.request)
            elif entry is not None:
                self._take_own(entry, executor, event, now)
        if entry is not None:
            self._maintenance.plan_earlier(entry, executor.next_due())

    def _take_own(self, entry: RegistryEntry, executor: Executor, event: Event, now: float) -> None:
        match event:
            case Progress():
                entry.newest, entry.end_ordinal, entry.synced, is_new = event
                if is_new:
                    self._announce(entry.name, event.newest)
                self._resume_fetches(entry, now)
            case GroupReady():
                self._resume(self.pending_fetches.take_group(entry.name, event, now), now)
            case DeadLetter():
                self._resume([publish_of(entry.name, event)], now)
            case Released():
                executor.release(event, now)
                if executor.given:
                    self._ready[entry] = None
            case Brought():
                executor.given.append(event.item)
                self._ready[entry] = None
            case Informed():
                self.registry.learn(entry, event)
                self._retention.plan(entry, event.retention_due)
            case Opening():
                entry.scanned = (event.done, event.size)
            case Opened():
                self._opened(entry, now)
            case DiskLow():
                self.disk_low_at = now
            case Idle():
                if entry.state is State.OPEN and not entry.outstanding:
                    self.scheduler.hibernate(entry)
            case Closed():
                self.registry.closed(entry)
                executor.end()
                queued = entry.take_back() if not self._is_stopping else []  # it may need no opening
                self.scheduler.released(entry, Transition.CLOSED, now)
                self._resume([self.in_work.remove(one, now) for one in queued], now)
            case Deleted():
                note("topic_deleted", topic=entry.name)
                executor.end()
                self.scheduler.released(entry, Transition.DELETED, now)
                self._forget(entry, error("unknown_topic", f"topic {entry.name!r} was deleted"))
                self._send(event.frames)
                self._done(None, event.request, now)
            case Failed():
                self._failed(entry, executor, event, now)

    def _opened(self, entry: RegistryEntry, now: float) -> None:
        self.registry.opened(entry, now)
        queued, entry.queued = entry.queued, []
        refused = dict(self.access.revoked(queued))
        for request in queued:
            if request in refused:
                self._drop(entry, request, refused[request], now)
            else:
                self._give(entry, request, now)
        self._resume_fetches(entry, now)
        if not entry.outstanding:
            self.scheduler.hibernate(entry)

    def _done(self, entry: RegistryEntry | None, request: PendingRequest, now: float) -> None:
        """Take note that a request has its answer."""
        self.in_work.remove(request, now)
        if entry is None:
            return
        entry.outstanding -= 1
        entry.in_work -= 1
        if entry.deletion is not None:
            if entry.deletion is request:
                entry.deletion = None
            self._delete_if_alone(entry, now)
        if entry.makes_way and not entry.in_work:
            self.scheduler.hibernate(entry)
        if not entry.outstanding:
            self._resume_fetches(entry, now)
            if self.scheduler.waiting:
                self.scheduler.assign(now)

    def _failed(self, entry: RegistryEntry, executor: Executor, event: Failed, now: float) -> None:
        """Answer the requests of a topic that has failed; the next one opens it again."""
        left = [item for item in executor.end() if isinstance(item, PendingRequest)]
        for request in {*event.requests, *left, *self.registry.failed(entry)}:
            self._drop(entry, request, event.problem, now)
        if event.problem.code == "disk_low":
            self.disk_low_at = now
        self.scheduler.released(entry, Transition.FAILED, now)
        if entry.is_new:
            self._forget(entry, event.problem)
        elif event.problem.retryable:  # it could not even be opened, so its retention is still to be done
            self._retention.plan(entry, self.shared.clock.now() + RETRY_US)

    def _drop(self, entry: RegistryEntry, request: PendingRequest, problem: QuothError, now: float) -> None:
        """Refuse a request that its topic does not have, or has no more."""
        self._refuse([request], problem)
        self.in_work.remove(request, now)
        entry.drop(request)
        self._delete_if_alone(entry, now)

    def _resume_fetches(self, entry: RegistryEntry, now: float) -> None:
        """Go on with the fetches that have something new, no more of them than the topic takes."""
        if entry.deletion is None and self.pending_fetches:
            most = self.config.topic_requests_max - entry.outstanding
            self._resume(self.pending_fetches.take_ready(entry.name, *entry.ends, most), now)

    def _resume(self, requests: Iterable[PendingRequest], now: float) -> None:
        """Submit requests that were accepted before, or that a topic has made."""
        for request in requests:
            try:
                self.access.renew(request)
                self.submit(request, now)
            except QuothError as problem:
                self._refuse([request], problem)

    def _forget(self, entry: RegistryEntry, problem: QuothError) -> None:
        """Remove a topic that does not exist any more, and answer the fetches that wait for it."""
        self.registry.remove(entry)
        self._refuse(self.pending_fetches.take_all(entry.name), problem)

    def _refuse(self, requests: Iterable[PendingRequest], problem: QuothError) -> None:
        for request in requests:
            self._send(self.registry.metrics.refuse(request, problem))

    # -- time -----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> float:
        """Execute what is due; returns the monotonic time of the next call at the latest."""
        if self.pending_fetches.next_due() <= now:
            for request in self.pending_fetches.take_expired(now):
                self._send(self.registry.nothing_for(request))
            self._resume(self.pending_fetches.take_retries(now), now)
        for entry in self._maintenance.take_due(now):
            if entry.executor is not None:
                self.take(entry.executor, entry.executor.tick(now), now)
        for entry in self._retention.take_due(self.shared.clock.now()):
            if entry.state is State.HIBERNATING:
                self.scheduler.need(entry, now)
        return min(self.scheduler.tick(now), self.pending_fetches.next_due(), self._maintenance.next_due())

    # -- the end --------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Refuse further requests, and answer the fetches that wait."""
        self._is_stopping = True
        self.scheduler.drain()
        self._refuse(self.pending_fetches.take_all(), error("stopping", "the broker is shutting down"))

    def end(self, until: float) -> tuple[list[str], list[str]]:
        """Close all topics, until the monotonic clock says so; no call follows this one.

        Returns the topics whose threads are still at work, and the other ones with unsynced records.
        """
        self.scheduler.finish()
        self.shared.outbox.abandon(Executor.take_late)
        at_work, unsynced = self.scheduler.join(until, self.shared.clock.monotonic)
        failed = [entry.name for entry in self.registry if entry.metadata.failure is not None]
        return at_work, sorted({*unsynced, *failed} - {*at_work})
