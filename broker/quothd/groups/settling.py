"""Settlement of records by members: acks, nacks, extensions, terminations, releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from quothd.groups.dead_letters import REASON_MAX, DeadLetters
from quothd.groups.store import GroupStore
from quothd.requests.pending_request import PendingRequest
from quothlog.groups import events
from quothlog.groups.group_state import GroupState
from quothlog.groups.spans import RANGES_MAX, Span
from quothwire.errors import error
from quothwire.protocol.group_messages import GroupSettle, GroupSettled
from quothwire.protocol.group_settings import CURSOR
from quothwire.protocol.settlement import Settle, Settlement, decode_settlements

NACKED = "a member has given it back"
TERMINATED = "a member has rejected it"
DIVIDED_BY_ROW = 2
"""Ranges that a row adds at most, in the middle of one."""


@dataclass(slots=True)
class _Outcome:
    """The effects of the rows of one request. held: the spans that have the lease of each other row.

    late: the finished spans that were not under the lease of their row.
    """

    finished: list[Span] = field(default_factory=list)
    held: list[tuple[Settlement, list[Span]]] = field(default_factory=list)
    lost: list[list[int]] = field(default_factory=list)
    late: list[Span] = field(default_factory=list)

    def held_by(self, kind: Settle) -> list[Span]:
        """Return the spans of the rows of one kind."""
        return [span for row, spans in self.held if row.kind is kind for span in spans]


class Settling:
    """The settlements of the groups of one topic. Owned by the topic."""

    def __init__(self, store: GroupStore, letters: DeadLetters) -> None:
        self._store = store
        self._letters = letters

    def settle(self, request: PendingRequest, now: float) -> None:
        """Execute a request: what has to survive a restart is logged before anything changes.

        Raises `QuothError`, or OSError.
        """
        asked: GroupSettle = request.decode()
        rows = decode_settlements(request.responder.payload(), asked.rows)
        store = self._store
        group = store.group(asked.group)
        if group.settings.mode == CURSOR:
            raise error("bad_request", f"{group.name!r} is a cursor: commit it")
        group.expire(now)
        reason = asked.reason[:REASON_MAX]
        found = self._find(group, rows, asked.generation, now)
        records, late = store.count(found.finished), store.count(found.late)
        terminated, released = found.held_by(Settle.TERM), found.held_by(Settle.RELEASE)
        if found.finished or terminated or released:
            changes = [events.settled(group, found.finished)]
            changes += events.terminated(group, terminated, reason or TERMINATED)
            changes += [events.attempted(group, released, -1)] if released else []
            store.change(changes, now)
        group.finish(found.finished)
        for row, held in found.held:
            self._apply(group, row, held, reason, now)
        self._letters.take(group, now)
        store.announce(group, now)
        is_synced = store.is_synced(group)
        reply = GroupSettled(records, late, found.lost, "synced" if is_synced else "written")
        store.answer(request, reply, store.end, is_synced)

    def _find(self, group: GroupState, rows: Sequence[Settlement], generation: int, now: float) -> _Outcome:
        """Find the spans that the rows of a request are about."""
        found = _Outcome()
        if generation not in (0, group.generation):
            found.lost = [[row.first, row.last] for row in rows]
            return found
        self._check_ranges(group, rows)
        for row in rows:
            if row.kind is Settle.ACK:
                spans = group.ack(row.first, row.last, self._store.log.newest)
                found.finished += spans
                found.late += _late(spans, row.token) if row.token else []
            else:
                held = group.find(row.first, row.last, row.token)
                if row.kind is Settle.EXTEND:
                    held = _extensible(held, now + _extension(group, row))
                found.held.append((row, held))
                found.lost += _without(row, held)
        return found

    def _check_ranges(self, group: GroupState, rows: Sequence[Settlement]) -> None:
        """Raise ``busy`` if the rows would divide the group's records into more ranges than it may have."""
        ranges = len(group.spans)
        if ranges + DIVIDED_BY_ROW * len(rows) <= RANGES_MAX:
            return
        newest = self._store.log.newest
        grown = sum(_growth(group, row, newest) for row in rows)
        if grown > 0 and ranges + grown > RANGES_MAX:
            text = f"group {group.name!r} has {ranges} separate ranges of unfinished records"
            raise error("busy", text, "nothing was done; finish its earliest records, or whole leases, first")

    def _apply(self, group: GroupState, row: Settlement, held: list[Span], reason: str, now: float) -> None:
        """Apply a row to the spans that have its lease."""
        if row.kind is Settle.NACK:
            for span in held:
                seconds = (row.milliseconds - 1) / 1_000
                delay = seconds if row.milliseconds else group.settings.delay(span.attempts)
                group.retry([span], reason or NACKED, now + delay)
        elif row.kind is Settle.EXTEND:
            seconds = _extension(group, row)
            for lease in {id(span.lease): span.lease for span in held}.values():
                group.extend([span for span in held if span.lease is lease], now + seconds)
        elif row.kind is Settle.RELEASE:
            group.release(held)
        else:
            group.terminate(held, reason or TERMINATED)


def _extension(group: GroupState, row: Settlement) -> float:
    """Return the seconds from now on for which a row extends leases."""
    return row.milliseconds / 1_000 if row.milliseconds else group.settings.lease


def _extensible(held: Sequence[Span], deadline: float) -> list[Span]:
    """Return the spans whose leases may last until a deadline."""
    return [span for span in held if span.lease is not None and deadline <= span.lease.deadline_max]


def _growth(group: GroupState, row: Settlement, newest: int) -> int:
    """Return by how many ranges of unfinished records a group grows by a row."""
    is_ack = row.kind is Settle.ACK
    grown = group.spans.growth(row.first - 1, row.last, is_finished=is_ack)
    return grown + (is_ack and min(row.last, newest) > group.cursor)


def _late(spans: Sequence[Span], token: int) -> list[Span]:
    """Return the spans that are not under the lease of a token."""
    return [one for one in spans if one.lease is None or one.lease.token != token]


def _without(row: Settlement, held: Sequence[Span]) -> list[list[int]]:
    """Return the ranges of a row that none of its spans has."""
    missing: list[list[int]] = []
    at = row.first
    for span in held:
        if span.after >= at:
            missing.append([at, span.after])
        at = span.until + 1
    return [*missing, [at, row.last]] if at <= row.last else missing
