"""Holds all topics by name, as the front end knows them. A hibernating one costs about 2 KB."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from quothd.access.access import scope_of
from quothd.access.ledger import ALL, Ledger
from quothd.access.quota import Quota
from quothd.access.rights import KnownClient
from quothd.access.topic_scope import EVERYTHING, TopicScope
from quothd.config.config import Config
from quothd.frontend.topic_states import State, Transition, follow
from quothd.groups.administration import check_new_group
from quothd.groups.readiness import finds_nothing
from quothd.metrics.broker_metrics import BrokerMetrics, ChangeOrder
from quothd.metrics.group_metrics import GroupMetrics
from quothd.metrics.measures import NO_TRAFFIC, Traffic
from quothd.metrics.topic_page import (
    TopicPage,
    TopicSelection,
    changed_among,
    changed_in_all,
    changed_within,
    newest_serial,
    page_of,
)
from quothd.requests.dead_letter import DeadLetterResponder, outcome_of
from quothd.requests.events import Informed
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothd.threads.executor import Executor
from quothd.topics.metadata import TopicMetadata
from quothd.topics.publishing import check_first
from quothlog import LogInfo
from quothlog.datadir.topic_file import TopicFile
from quothlog.datadir.topic_folder import TopicFolder
from quothlog.file_format import LogPosition
from quothlog.recovery.recovery import new_log_id
from quothlog.storage.clock import Clock
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.group_messages import GroupFetched, OpenGroup
from quothwire.protocol.messages import Fetched, Operation
from quothwire.protocol.metric_messages import GetMetrics
from quothwire.protocol.msgpack_schema import REPLY_BYTES_MAX

_READS = (Operation.FETCH, Operation.GROUP_FETCH, Operation.ADVANCE, Operation.SPLIT, Operation.COUNT)
CREATING = (Operation.PUBLISH, Operation.STAGE, Operation.CREATE, Operation.OPEN_GROUP)
"""Operations that create a topic which does not exist."""

STATES_BYTES_MAX = REPLY_BYTES_MAX // 2
"""Names and letters in one status: topics with thousands of segments make it shorter, not larger."""
NOTHING = LogPosition(0, 0, 0)
SUMS = (
    "clock_steps", "torn_bytes", "damaged_bytes", "lost_records", "quarantined_bytes", "unknown_files",
    "dead_letters_delayed",
)  # fmt: skip
"""Counters and gauges of topics that the status sums up."""


def unknown_topic(name: str) -> QuothError:
    """Make the error for a topic that does not exist."""
    return error("unknown_topic", f"there is no topic {name!r}")


def check_absent(request: PendingRequest, now: float) -> None:
    """Raise ``unknown_topic`` for a fetch that does not wait until its topic is created.

    A reader that expects a record knew the topic.
    """
    request.begin_fetch(now)
    if not request.deadline or request.message.ordinal >= 0:
        raise unknown_topic(request.topic)


@dataclass(slots=True, eq=False)
class RegistryEntry:
    """One topic.

    executor: None while the topic is not active. info: None until the log has been opened once. newest,
    end_ordinal: how far readers see. synced: how far those that see synced records alone. outstanding:
    requests that are accepted and have no answer. queued: those of them that wait until the topic is open.
    in_work: those that the executor has. makes_way: the topic gets no more requests, so that another one can
    be opened. was_new: its present opening has created it. scanned: bytes that its opening has scanned, of
    those that it has to. deletion: the request that deletes it once all others are answered. traffic: since
    the start. groups, problem: as they were when it reported last. serial: see `ChangeOrder`.
    """

    metadata: TopicMetadata
    is_new: bool
    state: State = State.HIBERNATING
    executor: Executor | None = None
    info: LogInfo | None = None
    newest: int = 0
    end_ordinal: int = 0
    synced: LogPosition = NOTHING
    outstanding: int = 0
    queued: list[PendingRequest] = field(default_factory=list)
    in_work: int = 0
    makes_way: bool = False
    was_new: bool = False
    deletion: PendingRequest | None = None
    opening_since: float = 0.0
    scanned: tuple[int, int] = (0, 0)
    used: float = 0.0
    traffic: Traffic = NO_TRAFFIC
    groups: tuple[GroupMetrics, ...] = ()
    problem: str = ""
    serial: int = 0

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.metadata.topic.name

    @property
    def ends(self) -> tuple[int, int]:
        """The newest pointers that may be seen, by readers of everything and by those of synced records."""
        return self.newest, self.synced.pointer

    @property
    def is_active(self) -> bool:
        """True while it has a thread."""
        return self.executor is not None

    def step(self, transition: Transition) -> None:
        """Change the state by the table."""
        self.state = follow(self.state, transition)

    def opened(self) -> None:
        """Take note that the log is open."""
        self.step(Transition.OPENED)
        note("topic_made" if self.is_new else "topic_opened", topic=self.name)
        self.is_new = False
        self.synced = LogPosition(0, self.newest, self.end_ordinal)  # an opening syncs what it finds

    def drop(self, request: PendingRequest) -> None:
        """Forget a request that the executor does not have."""
        self.outstanding -= 1
        if self.deletion is request:
            self.deletion = None

    def check_opening(self, request: PendingRequest, now: float, timeout: float) -> None:
        """Raise ``recovering`` for a read if its opening takes longer than so many seconds."""
        elapsed = now - self.opening_since
        if elapsed > timeout and request.operation in _READS:
            done, size = self.scanned
            text = f"topic {self.name!r} has been opening for {elapsed:.1f} s"
            more = f", {done} of {size} bytes have been looked through" if size else ""
            raise error("recovering", text + more)

    def needs_no_opening(self, request: PendingRequest, config: Config, clock: Clock) -> bool:
        """Return True for a description, and for a fetch that finds nothing, of a topic that hibernates."""
        if self.info is None:
            return False
        if request.operation is Operation.GROUP_FETCH:
            return finds_nothing(self.metadata, request, self.newest, config.group_pending_max, clock)
        if request.operation is Operation.FETCH:
            request.begin_fetch(clock.monotonic())
            return request.after >= self.newest
        return request.operation is Operation.DESCRIBE

    def nothing_for(self, request: PendingRequest) -> Frames:
        """Return the answer of a fetch that found nothing."""
        log_id = self.metadata.topic.log_id
        if request.group:
            empty = GroupFetched(log_id, 0, [], 0, 0, 0, self.newest, self.end_ordinal)
            return request.responder.reply(empty)
        seen = self.newest, self.end_ordinal
        newest, end = seen if request.durability is None else self.synced[1:]
        return request.responder.reply(Fetched(log_id, request.message.after, newest, 0, end))

    def answer_for(self, request: PendingRequest) -> Frames:
        """Return the answer of a request that needs no opening, and does not wait."""
        if request.operation is not Operation.DESCRIBE:
            return self.nothing_for(request)
        assert self.info is not None, "it was opened once"
        request.decode()
        return request.responder.reply(self.metadata.describe(self.info, self.segments()))

    def has_staged(self) -> bool:
        """Return True if it hibernates, and holds staged batches."""
        has_any = self.info is not None and self.info.gauges["staged_bytes"] > 0
        return has_any and self.state is State.HIBERNATING

    def take_queued(self) -> list[PendingRequest]:
        """Return the requests that its executor does not have, the deletion among them, and forget them."""
        requests = [*self.queued, *([self.deletion] if self.deletion is not None else [])]
        self.queued, self.deletion = [], None
        return requests

    def take_back(self) -> list[PendingRequest]:
        """Return the requests that its executor does not have, as if they had not come.

        None of a topic that is to be deleted.
        """
        if self.deletion is not None:
            return []
        queued, self.queued = self.queued, []
        self.outstanding -= len(queued)
        return queued

    def segments(self) -> str:
        """A letter a segment, see `TopicInfo`; those of a topic that is not active hibernate."""
        letters = self.info.states if self.info is not None else "h"
        return letters if self.executor is not None else "h" * len(letters)


class Registry:
    """The entries of all topics, in the order of their names' bytes. Owned by the front end's thread.

    entries: by name, to look one up. ledger: counts the topics of each client, and the bytes in them.
    changes: the order in which they changed. metrics: what they all have done.
    """

    def __init__(self, folders: Iterable[TopicFolder], ledger: Ledger, now: int) -> None:
        self.ledger = ledger
        self.changes: ChangeOrder[RegistryEntry] = ChangeOrder(now)
        self.metrics = BrokerMetrics()
        self.entries: dict[str, RegistryEntry] = {}
        self._names: list[bytes] = []
        self._totals: Counter[str] = Counter()
        for folder in folders:
            self._add(RegistryEntry(TopicMetadata(folder.path, folder.topic, folder.problem), is_new=False))

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[RegistryEntry]:
        return iter(self.entries.values())

    def create(self, request: PendingRequest, config: Config, now: float) -> RegistryEntry:
        """Add the topic of a request, which does not exist yet; its thread will make the folder.

        Raises ``unknown_topic`` where the request may not create one, ``topics_max``, ``quota_exceeded``, and
        what is wrong with the request: a publish that is refused leaves no empty topic behind. The topic is
        its client's; that of dead letters is the client's whose topic they come from.
        """
        settings = config.topic_settings()
        is_letter = isinstance(request.responder, DeadLetterResponder)
        may_create = request.operation is Operation.CREATE or config.auto_create or is_letter
        opens_group = request.operation is Operation.GROUP_FETCH and request.responder.opens_groups
        if request.client is not None:
            may_create = may_create and request.client.may_create(request.topic)
        if not may_create or not (opens_group or request.operation in CREATING):
            raise unknown_topic(request.topic)
        if request.operation is Operation.CREATE:
            settings = settings.changed(request.decode().settings)
        elif request.operation is Operation.OPEN_GROUP:
            check_new_group(request.decode(), request.topic, request.client)
        elif opens_group:
            check_new_group(OpenGroup(request.decode().group), request.topic, request.client)
        else:
            check_first(request)
        if len(self.entries) >= config.topics_max:
            raise error("topics_max", f"there are {len(self.entries)} topics already")
        owner = self._owner_of(request)
        self.ledger.check(owner, Quota.TOPICS)
        self.ledger.check_creation(owner, now)
        self.ledger.check(owner, Quota.STORE_BYTES)
        self.ledger.count_creation(owner, now)
        topic = TopicFile(request.topic, new_log_id(), settings, owner)
        entry = RegistryEntry(TopicMetadata(None, topic), is_new=True)
        self._add(entry)
        return entry

    def nothing_for(self, request: PendingRequest) -> Frames:
        """Return the answer of a fetch that has waited for nothing."""
        entry = self.entries.get(request.topic)
        if entry is None:
            return request.responder.refuse(unknown_topic(request.topic))
        return entry.nothing_for(request)

    def _owner_of(self, request: PendingRequest) -> str:
        """Return the client whose topic a request creates."""
        if isinstance(request.responder, DeadLetterResponder):
            origin = self.entries.get(request.responder.origin)
            return origin.metadata.topic.owner if origin is not None else ALL
        return request.client.name if request.client is not None else ALL

    def _add(self, entry: RegistryEntry) -> None:
        self.ledger.count(entry.metadata.topic.owner, Quota.TOPICS)
        self.entries[entry.name] = entry
        self.changes.touch(entry)
        insort(self._names, entry.name.encode())

    def remove(self, entry: RegistryEntry) -> None:
        """Remove a topic that does not exist any more."""
        self._sum_up(entry, -1)
        self.changes.forget(entry)
        self.ledger.release(entry.metadata.topic.owner, Quota.TOPICS)
        del self.entries[entry.name]
        self._names.remove(entry.name.encode())

    def opened(self, entry: RegistryEntry, now: float) -> None:
        """Take note that a topic is open."""
        entry.opened()
        self._touch(entry)
        self.metrics.observe_opening(now - entry.opening_since)

    def closed(self, entry: RegistryEntry) -> None:
        """Take note that a topic hibernates."""
        note("topic_slept", topic=entry.name)
        self._touch(entry)

    def failed(self, entry: RegistryEntry) -> list[PendingRequest]:
        """Take note that a topic has failed; returns the requests that its executor did not have."""
        self._touch(entry)
        return entry.take_queued()

    def learn(self, entry: RegistryEntry, event: Informed) -> None:
        """Take note of the state of a topic's log and groups, and of what it has done."""
        info, measures, problem = event.info, event.measures, entry.metadata.problem_text
        if measures or (entry.info, entry.groups, entry.problem) != (info, event.groups, problem):
            self._touch(entry)
        self._sum_up(entry, -1)
        entry.info, entry.newest, entry.end_ordinal = info, info.last, info.end_ordinal
        self._sum_up(entry, 1)
        entry.groups, entry.problem = event.groups, problem
        if measures:
            entry.traffic = entry.traffic.plus(measures.traffic)
            self.metrics.add(measures)

    def give_outcome(self, frames: Frames) -> RegistryEntry | None:
        """Give the outcome of a dead letter to its topic; returns that if it is active."""
        origin, done = outcome_of(frames)
        entry = self.entries.get(origin)
        if entry is None or entry.executor is None:
            return None
        entry.executor.given.append(done)
        return entry

    def names(self, after: str, limit: int, scope: TopicScope = EVERYTHING) -> list[str]:
        """Names of topics above `after`, in the order of their bytes. scope: those that count."""
        found: list[bytes] = []
        for start, end in scope.rows(self._names, after.encode()):
            found += self._names[start : min(end, start + limit - len(found))]
            if len(found) == limit:
                break
        return [name.decode() for name in found]

    def count(self, scope: TopicScope) -> int:
        """Return the number of topics in a scope."""
        return sum(end - start for start, end in scope.rows(self._names))

    def states(self, after: str, limit: int, scope: TopicScope = EVERYTHING) -> dict[str, str]:
        """The letters of topics above `after`, as many as fit into one reply. scope: those that count."""
        states: dict[str, str] = {}
        room = STATES_BYTES_MAX
        for name in self.names(after, limit, scope):
            letters = self.entries[name].segments()
            room -= len(name.encode()) + len(letters)
            if room < 0 and states:
                break
            states[name] = letters
        return states

    def page(self, request: GetMetrics, client: KnownClient | None) -> TopicPage:
        """Return topics for the metrics. Looks at a limited number of them."""
        scope = scope_of(client)
        if request.since:
            selection = self._changed(request.since, scope)
        else:
            most = request.limit + 1 if request.limit else 0
            topics = (self.entries[name] for name in self.names(request.after, most, scope))
            selection = TopicSelection(topics, self._serial(scope))
        return page_of(selection, request, client, STATES_BYTES_MAX)

    def _changed(self, since: int, scope: TopicScope) -> TopicSelection:
        """Return the topics of a scope that have changed, in the order of their changes."""
        if scope.is_everything:
            return changed_in_all(self.changes, since)
        if self.count(scope) > self.changes.examined_max:
            return changed_within(scope, self.changes, since)
        return changed_among(self._first(scope), self.changes, since)

    def _serial(self, scope: TopicScope) -> int:
        """Return a serial for a client that lists the topics of a scope from now on: no later than now, and
        where others are hidden, of a topic in it."""
        return self.changes.serial if scope.is_everything else newest_serial(self._first(scope), self.changes)

    def _first(self, scope: TopicScope) -> list[RegistryEntry]:
        return [self.entries[name] for name in self.names("", self.changes.examined_max, scope)]

    def totals(self) -> dict[str, int]:
        """Counters over all topics that were opened since the start."""
        sums = {name: self._totals[name] for name in (*SUMS, "pointer_ahead_us_max")}
        return {**sums, **self.metrics.traffic._asdict()}

    def _touch(self, entry: RegistryEntry) -> None:
        """Take note that a topic has changed, unless it does not exist any more."""
        if self.entries.get(entry.name) is entry:
            self.changes.touch(entry)

    def _sum_up(self, entry: RegistryEntry, sign: int) -> None:
        if (info := entry.info) is not None:
            self.ledger.count(entry.metadata.topic.owner, Quota.STORE_BYTES, sign * info.bytes)
            counted = {**info.counters, **info.gauges}
            for name in SUMS:
                self._totals[name] += sign * counted[name]
            self._totals["pointer_ahead_us_max"] = max(
                self._totals["pointer_ahead_us_max"], counted["pointer_ahead_us"]
            )
