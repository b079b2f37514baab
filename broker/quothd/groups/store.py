"""Keeps the groups of one topic: their table in memory, and the log that makes it durable.

The log is opened, and read, at the first request about a group. When the topic hibernates, the table stays
with the topic's metadata while members hold leases. A change is made in memory and appended to the log before
anything is answered; if that fails, the table is read from the log again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from quothd.config.config import Config
from quothd.requests.events import EventList, SyncDone
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothd.topics.metadata import TopicMetadata
from quothd.topics.syncing import Syncing, Unsynced
from quothlog import Log
from quothlog.appender import SyncRequest
from quothlog.groups import events
from quothlog.groups.group_log import GroupLog, GroupTable
from quothlog.groups.group_state import GroupState
from quothlog.storage.clock import Clock
from quothwire.batch import Bytes
from quothwire.errors import QuothError, error
from quothwire.protocol.group_messages import END
from quothwire.protocol.group_settings import GroupSettings, check_group
from quothwire.protocol.messages import Reply

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
            self.metadata.groups = self._group_log.load()
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
        if after == END:
            return self.log.newest, self.log.end_ordinal
        return after, self.log.first_ordinal if after < self.log.info().first else -1

    # -- changes --------------------------------------------------------------------------------------------

    def create(self, name: str, settings: GroupSettings, start: int, now: float) -> int:
        """Create a group above a pointer, or at the end; returns the pointer as `change` does.

        Raises ``groups_max``, and what `change` does.
        """
        table = self._begin()
        if len(table) >= self.config.groups_max:
            raise error("groups_max", f"topic {self.topic!r} has {len(table)} groups")
        table.last_number += 1
        group = GroupState(table.last_number, name, settings, *self.position(start))
        group.used = self.now()
        table.by_name[name] = group
        last = self.change([events.snapshot(group)], now, twice=True)
        note("group_made", topic=self.topic, group=name)
        return last

    def change(self, changes: Sequence[bytes], now: float, *, twice: bool = False) -> int:
        """Append events; returns the pointer up to which their log has to be synced.

        Raises `QuothError`, or OSError; then the groups are as their log has them, without leases.
        """
        log, syncing = self._group_log, self._syncing
        assert log is not None, "a group was found, or begun"
        assert syncing is not None, "it comes with the log"
        try:
            last = (log.append_twice if twice else log.append)([*changes])
            syncing.measure(now)
            return last
        except BaseException:
            self.metadata.groups = None
            raise

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

    def settle(self, now: float) -> None:
        """Begin a due fsync, and answer the requests that one has reached."""
        syncing = self._syncing
        if syncing is None:
            return
        syncing.begin_if_due(now)
        if syncing.waiting:
            syncing.answer_reached(self.events)

    def compact(self) -> None:
        """Make the log of the groups shorter if it has grown. Logs a failure; the next call tries again."""
        table = self.metadata.groups
        if self._group_log is None or table is None or self.is_syncing:
            return
        try:
            self._group_log.compact(table)
        except (OSError, QuothError) as problem:
            note("group_log_not_compacted", topic=self.topic, problem=problem)

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        self.config = config
        if self._syncing is not None:
            self._syncing.config = config

    def close(self, now: float) -> None:
        """Sync and close the log of the groups. The table stays while members hold leases."""
        log, self._group_log = self._group_log, None
        if log is not None:
            if log.log.failure is None:
                log.log.sync()
            self.settle(now)
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
