"""Keeps the groups of one topic: their table in memory, and the log that makes it durable.

The log is opened, and read, at the first request about a group. When the topic hibernates, the table stays
with the topic's metadata while members hold leases. What has to survive a restart is appended to the log
before it is done in memory. If that fails, nothing has changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from quothd.access.quota import Quota
from quothd.access.rights import KnownClient
from quothd.config.config import Config
from quothd.groups.readiness import Readiness, readiness_of
from quothd.requests.events import EventList, GroupReady, SyncDone
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothd.topics.metadata import TopicMetadata
from quothd.topics.syncing import Syncing, Unsynced
from quothlog import Log
from quothlog.appender import SyncRequest
from quothlog.groups import events
from quothlog.groups.group_log import GroupLog, GroupTable
from quothlog.groups.group_state import GroupState
from quothlog.groups.spans import Span
from quothlog.storage.clock import Clock
from quothwire.batch import Bytes
from quothwire.errors import QuothError, error
from quothwire.protocol.group_messages import END, first_generation
from quothwire.protocol.group_settings import CURSOR, GroupSettings, check_group
from quothwire.protocol.messages import Reply

UNKNOWN_COUNTED_MAX = 100
"""Spans of unknown size whose records are counted at once; each takes a read. After a restart only."""
COMPACT_AGAIN_S = 10.0
"""Time after a failure before the log is compacted again."""
MEMBER_SHOWN_S = 600.0
"""A member without a request for so long is not shown any more once the topic has hibernated."""


class GroupStore:
    """The groups of one open topic. Owned by the topic.

    log: the topic's own log. submit: gives a request to the fsync thread.
    """

    def __init__(
        self,
        log: Log,
        metadata: TopicMetadata,
        config: Config,
        submit: Callable[[SyncRequest], None],
        events: EventList,
        clock: Clock,
    ) -> None:
        self.log = log
        self.metadata = metadata
        self.config = config
        self.events = events
        self._submit = submit
        self._clock = clock
        self._group_log: GroupLog | None = None
        self._syncing: Syncing | None = None
        self._compact_from = -math.inf

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.metadata.topic.name

    @property
    def is_open(self) -> bool:
        """True if requests about groups read nothing before they are executed."""
        return self._group_log is not None and self.metadata.groups is not None

    def table(self) -> GroupTable:
        """Return the groups, read from their log at the first call. Raises `QuothError`, or OSError."""
        if self._group_log is None:
            path = self._path
            if self.metadata.groups is None and not GroupLog.exists(path, self.log.filesystem):
                return GroupTable()
            self._open(path)
        if self.metadata.groups is None:
            assert self._group_log is not None, "it was opened"
            self.metadata.groups = self._group_log.load(self._clock.monotonic())
            self._check_ordinals(self.metadata.groups)
            if self._group_log.lost:
                note("group_events_lost", topic=self.topic, events=self._group_log.lost)
        return self.metadata.groups

    def now(self) -> int:
        """Return the time, as a pointer."""
        return self._clock.now()

    def group(self, name: str) -> GroupState:
        """Return a group. Raises ``unknown_group``, or ``bad_group``."""
        group = self.table().by_name.get(name)
        if group is None:
            check_group(name)
            raise error("unknown_group", f"topic {self.topic!r} has no group {name!r}")
        return group

    def position(self, after: int) -> tuple[int, int]:
        """Return the pointer above which a group begins, and the ordinal there, as far as it is known."""
        log = self.log
        if after in (END, log.newest):
            return log.newest, log.end_ordinal
        is_below_all = after < (log.info().first or log.newest)
        return after, log.first_ordinal if is_below_all else -1

    # -- changes --------------------------------------------------------------------------------------------

    def create(
        self, name: str, settings: GroupSettings, start: int, now: float, client: KnownClient | None
    ) -> int:
        """Create a group above a pointer, or at the end; returns the pointer as `change` does.

        Raises ``groups_max``, ``quota_exceeded``, and what `change` does.
        """
        table = self._begin()
        if client is not None:
            client.check_limit(Quota.GROUPS, len(table))
        if len(table) >= self.config.groups_max:
            raise error("groups_max", f"topic {self.topic!r} has {len(table)} groups")
        number = table.last_number + 1
        group = GroupState(number, name, settings, *self.position(start), first_generation(number))
        group.used = self.now()
        last = self.change([events.snapshot(group)], now, twice=True)
        table.last_number = number
        table.by_name[name] = group
        note("group_made", topic=self.topic, group=name)
        return last

    def change(self, changes: Sequence[bytes], now: float, *, twice: bool = False) -> int:
        """Append events; returns the pointer up to which their log has to be synced.

        Raises `QuothError`, or OSError; then none of them is in the log. twice: see `GroupLog.append`.
        """
        log, syncing = self._group_log, self._syncing
        assert log is not None, "a group was found, or begun"
        assert syncing is not None, "it comes with the log"
        last = log.append(changes, twice=twice)
        syncing.measure(now)
        return last

    @property
    def end(self) -> int:
        """The pointer of the last event in the log of the groups, 0 without any."""
        return self._group_log.log.appender.active.end.pointer if self._group_log is not None else 0

    @property
    def synced(self) -> int:
        """The pointer of the last event that survives a power cut."""
        return self._syncing.synced_pointer if self._syncing is not None else 0

    @property
    def failure(self) -> QuothError | None:
        """The reason for which the log of the groups takes no more events, None if it does."""
        return self._group_log.log.failure if self._group_log is not None else None

    def count(self, spans: Sequence[Span]) -> int:
        """Count the records of some spans, in order; an upper bound if many of them are unknown.

        Raises OSError.
        """
        unknown = [span for span in spans if span.extents is None]
        known = sum(span.records for span in spans if span.extents is not None)
        return known + self._count_unknown(unknown) if unknown else known

    def _count_unknown(self, spans: Sequence[Span]) -> int:
        """Count the records of spans that do not know them; each remembers the count."""
        fresh = [span for span in spans if span.counted < 0]
        if not fresh:
            return sum(span.counted for span in spans)
        survey = self.log.survey(fresh[0].after)
        for span in fresh[:UNKNOWN_COUNTED_MAX]:
            span.counted = survey.count(span.after, span.until)[0].records
        more = 0
        if rest := fresh[UNKNOWN_COUNTED_MAX:]:
            pointers = sum(span.until - span.after for span in rest)
            more = min(pointers, survey.count(rest[0].after, rest[-1].until)[0].records)
        return more + sum(max(0, span.counted) for span in spans)

    def announce(self, group: GroupState, now: float) -> None:
        """Report when the group has something to hand out, for the fetches that wait."""
        self.events.add(GroupReady(group.name, *self.readiness_of(group, now)))

    def readiness_of(self, group: GroupState, now: float) -> Readiness:
        """Find out when a group may have something to hand out."""
        return readiness_of(group, self.log.newest, self.config.group_pending_max, now)

    def answer(
        self, request: PendingRequest, reply: Reply, last: int, is_synced: bool, payload: Bytes | None = None
    ) -> None:
        """Answer a request, if asked for once the log of the groups is synced up to a pointer."""
        syncing = self._syncing
        if is_synced and syncing is not None and last > syncing.synced_pointer:
            syncing.waiting.append(Unsynced(request, reply, last, payload))
        else:
            self.events.reply(request, reply, payload)

    def is_synced(self, group: GroupState) -> bool:
        """Return True if the acks of a group are acknowledged once they are synced."""
        level = group.settings.durability or self.metadata.topic.settings.durability
        return level == "synced"

    # -- maintenance ----------------------------------------------------------------------------------------

    @property
    def is_syncing(self) -> bool:
        """True while the fsync thread has a request of the log of the groups."""
        return self._syncing is not None and self._syncing.is_running

    def next_sync(self) -> float:
        """Return the monotonic time at which an fsync has to begin; infinity if none has to."""
        return self._syncing.next_due() if self._syncing is not None else math.inf

    def owns(self, done: SyncDone) -> bool:
        """Return True for an fsync of the log of the groups."""
        return self._syncing is not None and self._syncing.owns(done)

    def finish_sync(self, done: SyncDone, now: float) -> None:
        """Take note of an fsync that the thread has executed."""
        assert self._syncing is not None, "it began the fsync"
        self._syncing.finish(done, now)

    def sync(self) -> None:
        """Sync the log of the groups in this thread, if it has to be. Raises `QuothError`."""
        if self._group_log is not None and self._group_log.log.unsynced_bytes:
            self._group_log.log.sync()

    def settle(self, now: float, *, is_urgent: bool = False) -> None:
        """Begin an fsync if it is due, or urgent, and answer the requests that one has reached."""
        syncing = self._syncing
        if syncing is None:
            return
        syncing.begin_if_due(now, is_urgent=is_urgent)
        if syncing.waiting:
            syncing.answer_reached(self.events)

    def compact(self) -> None:
        """Make the log of the groups shorter if it has grown. Logs a failure; a later call tries again."""
        table, now = self.metadata.groups, self._clock.monotonic()
        if self._group_log is None or table is None or self.is_syncing or now < self._compact_from:
            return
        try:
            self._group_log.compact(table)
        except (OSError, QuothError) as problem:
            self._compact_from = now + COMPACT_AGAIN_S
            note("group_log_not_compacted", topic=self.topic, problem=problem)

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        self.config = config
        if self._syncing is not None:
            self._syncing.config = config

    def sync_last(self, now: float) -> None:
        """Sync the log before it is closed. A failure refuses the requests that wait for that."""
        log = self._group_log
        if log is not None and log.log.failure is None:
            try:
                log.log.sync()
            except QuothError as problem:
                note("sync_failed", topic=self.topic, problem=problem)
        self.settle(now)

    def close(self, now: float) -> None:
        """Close the log of the groups, after `sync_last`. The table stays while members hold leases."""
        log, self._group_log = self._group_log, None
        if log is not None:
            log.close()
            self.metadata.groups_failure = log.log.failure
        table = self.metadata.groups
        if table is None:
            return
        for group in table:
            group.members.forget(now - MEMBER_SHOWN_S)
        if all(group.is_idle for group in table):
            self.metadata.groups = None

    def discard(self) -> None:
        """Close the log of the groups without writing anything, as for a topic that is being deleted."""
        if self._group_log is not None:
            self.metadata.groups_failure = self._group_log.log.failure
            self._group_log.log.discard()
        self._group_log = self.metadata.groups = None

    # -- inside ---------------------------------------------------------------------------------------------

    def _check_ordinals(self, table: GroupTable) -> None:
        """Correct the ordinals at cursors if a power cut took records, whose ordinals come again."""
        survey = self.log.survey(0)
        for group in table:
            if group.ordinal >= 0 and group.settings.mode != CURSOR:
                is_behind = group.cursor < survey.newest
                above = survey.count(group.cursor, survey.newest)[0].records if is_behind else 0
                group.ordinal = min(group.ordinal, survey.end - above)

    def _begin(self) -> GroupTable:
        """Return the groups, whose log is begun if there is none yet."""
        self.table()
        if self._group_log is None:
            self._open(self._path)
            self.metadata.groups = GroupTable()
        assert self.metadata.groups is not None, "it was read"
        return self.metadata.groups

    @property
    def _path(self) -> Path:
        assert self.metadata.path is not None, "the topic is open"
        return self.metadata.path

    def _open(self, path: Path) -> None:
        free_min = self.config.disk_free_min
        ports = self.log.filesystem, self._clock
        self._group_log = GroupLog.open(path, self.log.log_id, *ports, free_min)
        if self.metadata.groups_failure is not None:
            self._group_log.log.appender.write_failure.fail(self.metadata.groups_failure)
        self._syncing = Syncing(self.topic, self._group_log.log, self.config, self._submit)
