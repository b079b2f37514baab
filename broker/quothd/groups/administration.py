"""Creates, describes, changes and deletes groups, and moves them to other places."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import astuple, replace
from itertools import islice
from typing import Any, ClassVar, TypeAlias

from quothd.access.rights import KnownClient
from quothd.groups.dead_letters import DeadLetters
from quothd.groups.store import GroupStore
from quothd.groups.summaries import lag_of, oldest_of
from quothd.requests.events import GroupReady
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothlog.groups import events
from quothlog.groups.group_state import GroupState
from quothlog.groups.spans import Span, SpanState
from quothwire.errors import error
from quothwire.protocol.group_messages import (
    CommitCursor,
    GroupInfo,
    Groups,
    ListGroups,
    ListPending,
    OpenGroup,
    Pending,
    SeekGroup,
    UpdateGroup,
)
from quothwire.protocol.group_settings import CURSOR, GroupSettings, check_group
from quothwire.protocol.messages import Operation, Reply
from quothwire.text.quantity import format_span
from quothwire.topic import check_topic

MEMBERS_SHOWN_MAX = 100
Action: TypeAlias = "Callable[[Administration, PendingRequest, float], tuple[Reply, int]]"


class Administration:
    """The operations on whole groups of one topic. Owned by the topic."""

    def __init__(self, store: GroupStore, letters: DeadLetters) -> None:
        self._store = store
        self._letters = letters

    def handle(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        """Execute a request at a monotonic time.

        Returns the reply, and the pointer up to which the log of the groups has to be synced for it.
        """
        return self._ACTIONS[request.operation](self, request, now)

    def _open(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        asked: OpenGroup = request.decode()
        store = self._store
        name = check_group(asked.group)
        found = store.table().by_name.get(name)
        if found is not None:
            named = found.settings.changed(asked.settings)
            if named != found.settings:
                kept, wanted = found.settings.to_map(), named.to_map()
                differing = [f"{key} is {kept[key]}" for key in kept if kept[key] != wanted[key]]
                raise error(
                    "group_exists", f"group {name!r} of topic {store.topic!r}: {', '.join(differing)}"
                )
            return self._info(found, now), store.end
        settings = check_new_group(asked, store.topic, request.client)
        last = store.create(name, settings, asked.start, now, request.client)
        return self._info(store.group(name), now), last

    def _describe(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        return self._info(self._current(request.decode().group, now), now), 0

    def _list(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        asked: ListGroups = request.decode()
        groups = self._store.table().by_name
        names = sorted(groups, key=str.encode)
        start = bisect_right(names, asked.after.encode(), key=str.encode) if asked.after else 0
        listed = names[start : start + asked.limit]
        rows = [self._row(self._current(name, now)) for name in listed]
        return Groups(rows), 0

    def _update(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        asked: UpdateGroup = request.decode()
        group = self._store.group(asked.group)
        settings = _checked(group.name, self._store.topic, group.settings.changed(asked.settings))
        if request.client is not None and settings.dead_letter != group.settings.dead_letter:
            request.client.check_dead_letters(self._store.topic, group.name, settings)
        if (settings.mode == CURSOR) != (group.settings.mode == CURSOR):
            raise error("bad_setting", "a cursor stays a cursor, and no other group becomes one")
        is_paused = bool(asked.paused) if asked.paused >= 0 else group.is_paused
        last = self._log(replace(group, settings=settings, is_paused=is_paused), now)
        group.configure(settings, is_paused=is_paused)
        self._letters.take(group, now)
        self._store.announce(group, now)
        return self._info(group, now), last

    def _seek(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        asked: SeekGroup = request.decode()
        store = self._store
        group = store.group(asked.group).moved(*store.position(asked.after))
        last = self._log(group, now)
        group.members.end_leases()
        store.table().by_name[group.name] = group
        self._letters.forget(group.name)
        store.announce(group, now)
        note("group_moved", topic=store.topic, group=group.name, pointer=group.cursor)
        return self._info(group, now), last

    def _delete(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        store = self._store
        group = store.group(request.decode().group)
        info = self._info(group, now)
        last = store.change([events.removed(group.number)], now, twice=True)
        del store.table().by_name[group.name]
        self._letters.forget(group.name)
        store.events.add(GroupReady(group.name, now))
        note("group_deleted", topic=store.topic, group=group.name)
        return info, last

    def _pending(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        asked: ListPending = request.decode()
        spans = self._current(asked.group, now).spans.above(asked.after, asked.limit)
        leases = [span.lease.member if span.lease is not None else "" for span in spans]
        return Pending([_pending_row(span, now) for span in spans], leases), 0

    def _commit(self, request: PendingRequest, now: float) -> tuple[Reply, int]:
        asked: CommitCursor = request.decode()
        group = self._store.group(asked.group)
        if group.settings.mode != CURSOR:
            raise error("bad_request", f"{group.name!r} is no cursor: acknowledge its records")
        group.used = self._store.now()
        pointer = min(asked.pointer, max(group.cursor, self._store.log.newest))
        if asked.generation in (0, group.generation) and pointer > group.cursor:
            self._store.change([events.committed(group, pointer)], now)
            group.cursor, group.ordinal = pointer, -1
        return self._info(group, now), self._store.end if self._store.is_synced(group) else 0

    def _current(self, name: str, now: float) -> GroupState:
        """Return a group without the leases that have expired."""
        group = self._store.group(name)
        group.expire(now)
        self._letters.take(group, now)
        return group

    # -- inside ---------------------------------------------------------------------------------------------

    def _log(self, group: GroupState, now: float) -> int:
        """Log a group as it is to be; returns the pointer to wait for."""
        return self._store.change([events.snapshot(group)], now, twice=True)

    def _info(self, group: GroupState, now: float) -> GroupInfo:
        log = self._store.log
        row = self._row(group)
        members = islice(group.members, MEMBERS_SHOWN_MAX)
        shown = [
            {"name": name, "in_flight": one.in_flight, "idle": round(now - one.seen, 3)}
            for name, one in members
        ]
        lag, pending = lag_of(self._store, group)
        oldest = oldest_of(self._store, group)
        return GroupInfo(
            log=log.log_id, oldest=oldest, newest=log.newest, members=shown, lag=lag, pending=pending, **row
        )

    def _row(self, group: GroupState) -> dict[str, Any]:
        """Return the fields of a group that need no read of the log."""
        redelivered, dead, gone, _ = astuple(group.counts)
        idle = max(0, self._store.now() - group.used) / 1e6
        return {
            "group": group.name,
            "settings": group.settings.to_map(),
            "generation": group.generation,
            "paused": group.is_paused,
            "after": group.after,
            "cursor": group.cursor,
            "in_flight": group.in_flight,
            "redelivered": redelivered,
            "dead": dead,
            "gone": gone,
            "idle": idle,
            "problem": self._letters.problem(group.name) or self._unused(group, idle),
        }

    def _unused(self, group: GroupState, idle: float) -> str:
        """Return the problem of a group that has left records for too long, empty for any other one."""
        limit, has_lag = self._store.config.group_idle, group.after < self._store.log.newest
        return f"not used for {format_span(int(idle))}" if limit and has_lag and idle > limit else ""

    _ACTIONS: ClassVar[
        dict[Operation, Callable[[Administration, PendingRequest, float], tuple[Reply, int]]]
    ] = {
        Operation.OPEN_GROUP: _open,
        Operation.DESCRIBE_GROUP: _describe,
        Operation.LIST_GROUPS: _list,
        Operation.UPDATE_GROUP: _update,
        Operation.SEEK_GROUP: _seek,
        Operation.DELETE_GROUP: _delete,
        Operation.LIST_PENDING: _pending,
        Operation.COMMIT_CURSOR: _commit,
    }
    OPERATIONS = frozenset(_ACTIONS)


def check_new_group(asked: OpenGroup, topic: str, client: KnownClient | None) -> GroupSettings:
    """Return the settings of a group that a client creates.

    Raises ``bad_group``, ``bad_setting``, or ``denied`` for a dead-letter topic to which it may not write.
    """
    settings = _checked(check_group(asked.group), topic, GroupSettings.of(asked.settings))
    if client is not None:
        client.check_dead_letters(topic, asked.group, settings)
    return settings


def _checked(group: str, topic: str, settings: GroupSettings) -> GroupSettings:
    target = settings.dead_letter_topic(topic, group)
    if target == topic:
        raise error("bad_setting", "the dead letters of a group go to another topic than its own")
    if target and settings.mode != CURSOR:
        check_topic(target)
    return settings


def _pending_row(span: Span, now: float) -> list[int]:
    first, last = span.bounds
    lease = span.lease
    due = lease.deadline if lease is not None else span.due if span.state is SpanState.FREE else now
    token = lease.token if lease is not None else 0
    return [first, last, span.attempts, max(0, round((due - now) * 1_000)), token]
