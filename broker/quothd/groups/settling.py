"""Settlement of records by members: acks, nacks, extensions, terminations."""

from __future__ import annotations

from collections.abc import Iterable

from quothd.groups.dead_letters import DeadLetters
from quothd.groups.store import GroupStore
from quothd.requests.events import GroupReady
from quothd.requests.pending_request import PendingRequest
from quothlog.groups import events
from quothlog.groups.group_state import GroupState
from quothlog.groups.spans import Span
from quothwire.protocol.group_messages import GroupSettle, GroupSettled
from quothwire.protocol.settlement import Settle, Settlement, decode_settlements

NACKED = "a member has given it back"
TERMINATED = "a member has rejected it"


class _Outcome:
    """The changes by the rows of one request."""

    def __init__(self) -> None:
        self.finished: list[Span] = []
        self.records = 0
        self.late = 0
        self.lost: list[list[int]] = []


class Settling:
    """The settlements of the groups of one topic. Owned by the topic."""

    def __init__(self, store: GroupStore, letters: DeadLetters) -> None:
        self._store = store
        self._letters = letters

    def settle(self, request: PendingRequest, now: float) -> None:
        """Execute a request. Raises `QuothError`, or OSError."""
        asked: GroupSettle = request.decode()
        rows = decode_settlements(request.responder.payload(), asked.rows)
        store = self._store
        group = store.group(asked.group)
        is_synced = store.is_synced(group)
        found = _Outcome()
        if asked.generation not in (0, group.generation):
            found.lost = [[row.first, row.last] for row in rows]
        else:
            for row in rows:
                self._take(group, row, asked.reason, now, found)
        last = store.change([events.settled(group, found.finished)], now) if found.finished else 0
        if found.records or any(row.kind is not Settle.EXTEND for row in rows):
            store.events.add(GroupReady(group.name, group.waits_until(now) if not found.records else now))
        self._letters.take(group, now)
        reply = GroupSettled(found.records, found.late, found.lost, "synced" if is_synced else "written")
        store.answer(request, reply, last, is_synced)

    def _take(self, group: GroupState, row: Settlement, reason: str, now: float, found: _Outcome) -> None:
        if row.kind is Settle.ACK:
            spans = group.ack(row.first, row.last, self._store.log.newest)
            found.late += _late(spans, row)
            found.records += group.finish(spans)
            found.finished += spans
            return
        held = group.find(row.first, row.last, row.token)
        if not held:
            found.lost.append([row.first, row.last])
        elif row.kind is Settle.NACK:
            for span in held:
                seconds = (row.milliseconds - 1) / 1_000
                delay = seconds if row.milliseconds else group.settings.delay(span.attempts)
                group.release([span], reason or NACKED, now + delay)
        elif row.kind is Settle.EXTEND:
            seconds = row.milliseconds / 1_000 if row.milliseconds else group.settings.lease
            for lease in {id(span.lease): span.lease for span in held}.values():
                group.extend([span for span in held if span.lease is lease], now + seconds)
        else:
            group.terminate(held, reason or TERMINATED)


def _late(spans: Iterable[Span], row: Settlement) -> int:
    """Count the records of spans that are not under the lease of a token; 0 if the token is not known."""
    if not row.token:
        return 0
    late = (span for span in spans if span.lease is None or span.lease.token != row.token)
    return sum(max(1, span.records) for span in late)
