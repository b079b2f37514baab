"""State of one consumer group: the leases on its records, and those that are finished.

It has no log, no socket and no clock: its methods get the monotonic time and return the spans that have
changed. What survives a restart are the cursor, the spans and their attempts; leases do not, so what was not
finished is handed out again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quothlog.groups.key_order import KeyOrder
from quothlog.groups.members import Members
from quothlog.groups.selection import ChosenRecords
from quothlog.groups.span_queue import SpanQueue
from quothlog.groups.spans import RANGES_DIVIDED_MAX, RANGES_MAX, Lease, Span, SpanState, SpanTable
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_settings import GroupSettings

ALONE_FROM = 3
"""From this attempt on a record is handed out alone, so that one that kills its members takes no other one
with it; from the last attempt on where there are fewer."""
KEYS_SCANNED = 100
"""Records that a group with order by key reads at least, to find keys that nothing blocks."""

EXPIRED = "the lease has expired"
EXHAUSTED = "it was handed out as often as allowed"


class HandOut(NamedTuple):
    """The next hand-out: the first records in (after, until], at most so many.

    span: None for new ones. is_alone: no other record is to be handed out with it.
    """

    after: int
    until: int
    records_max: int
    span: Span | None
    is_alone: bool

    def is_next(self, group: GroupState) -> bool:
        """Return False if it must not be done any more, since the group has changed meanwhile."""
        if group.is_paused or self.span is None:
            return not group.is_paused and self.after == group.cursor
        span = self.span
        return span.state is SpanState.FREE and (span.after, span.until) == (self.after, self.until)


class GivenLease(NamedTuple):
    """A lease to give. deadline: monotonic time. deadline_max: up to which it may be extended."""

    token: int
    member: str
    deadline: float
    deadline_max: float = math.inf


@dataclass(slots=True)
class GroupCounts:
    """Records counted since the group was created, see `GroupInfo`. letters: the highest number of a dead
    letter."""

    redelivered: int = 0
    dead: int = 0
    gone: int = 0
    letters: int = 0


@dataclass(slots=True)
class Losses:
    """Records that are gone, and those of them that are damaged."""

    gone: int = 0
    damaged: int = 0

    def take(self) -> tuple[int, int]:
        """Return both numbers, and begin anew."""
        taken = self.gone, self.damaged
        self.gone = self.damaged = 0
        return taken


@dataclass(slots=True)
class GroupState:
    """The state of one group. Owned by the thread that has the topic's token.

    number: names it in the log of the groups. cursor: all records above it were never handed out. ordinal:
    that of the first of them, -1 if it is not known. generation: a higher one after each seek. in_flight:
    records under a lease. used: the time of its last use, as a pointer. losses: records that a hand-out found
    missing, of which no reply has said so yet.
    """

    number: int
    name: str
    settings: GroupSettings
    cursor: int
    ordinal: int = -1
    generation: int = 1
    is_paused: bool = False
    counts: GroupCounts = field(default_factory=GroupCounts)
    spans: SpanTable = field(default_factory=SpanTable)
    in_flight: int = 0
    used: int = 0
    losses: Losses = field(default_factory=Losses)
    members: Members = field(default_factory=Members)
    _keys: KeyOrder = field(default_factory=KeyOrder)
    _queue: SpanQueue = field(default_factory=SpanQueue)

    @property
    def after(self) -> int:
        """All records up to this pointer are finished."""
        first = self.spans.first
        return first.after if first is not None else self.cursor

    @property
    def is_idle(self) -> bool:
        """True if the group holds nothing that a reload from its log would lose."""
        return not (self._queue.has_leases or self._queue.has_delayed or self.members)

    @property
    def is_divided(self) -> bool:
        """True if it has so many spans that none may be divided any more, to be handed out again."""
        return len(self.spans) >= RANGES_DIVIDED_MAX

    # -- handing out ----------------------------------------------------------------------------------------

    def next_hand_out(
        self, records: int, in_flight_max: int, now: float, count: Callable[[list[Span]], int] = len
    ) -> HandOut | None:
        """Return what to hand out next to a member that asks for so many records; None for nothing now.

        in_flight_max: the bound of the broker. count: counts the records of unknown spans; without it one for
        each, which lets more be handed out. Call `expire` first.
        """
        if self.is_paused:
            return None
        if (span := self._queue.next_free(now)) is not None:
            if span.extents is None:
                records = min(self._scanned(records), span.until - span.after)
            alone = span.attempts + 1 >= min(ALONE_FROM, self.settings.max_attempts or ALONE_FROM)
            alone &= not self.is_divided
            return HandOut(span.after, span.until, 1 if alone else records, span, alone)
        room = _capacity(self, in_flight_max, count)
        most = min(self._scanned(records), room)
        return HandOut(self.cursor, POINTER_MAX, most, None, is_alone=False) if room > 0 else None

    def waits_until(self, now: float) -> float:
        """Return when there is something to hand out without any change; infinity for never."""
        if self.is_paused:
            return math.inf
        return now if self._queue.next_free(now) is not None else self._queue.next_due()

    def lease_new(self, chosen: ChosenRecords, lease: GivenLease) -> Span:
        """Hand out new records."""
        span = Span(self.cursor, chosen.last, 0, extents=chosen.extents)
        self.cursor, self.ordinal = chosen.last, chosen.ordinal
        self.spans.append(span)
        self._hand_out(span, lease)
        return span

    def lease_again(self, span: Span, until: int, chosen: ChosenRecords, lease: GivenLease) -> Span:
        """Hand out the records of a free span up to a pointer again. They were read again."""
        (part,) = self._cut(span.after, until)
        self._know(part, chosen)
        self._hand_out(part, lease)
        return part

    def lease_by_key(
        self, span: Span | None, chosen: ChosenRecords, keys: Sequence[int], wanted: int, lease: GivenLease
    ) -> list[Span]:
        """Hand out as many records as wanted of those that were read, one for each key at most.

        The others, up to the last one that is handed out, wait for that of their key. span: an unknown one
        that has these records, None for new ones. keys: the hash of the key of each record. Returns the spans
        that are handed out.
        """
        attempts = span.attempts if span is not None else 0
        parts, leased = self._keys.divide(chosen.extents, keys, wanted, attempts)
        last, skipped = parts[-1].until, chosen.records - len(parts)
        if span is None:
            self.cursor, self.ordinal = last, chosen.ordinal - skipped
            for part in parts:
                self.spans.append(part)
        else:
            (known,) = self._cut(span.after, last)
            self.spans.replace(known, parts)
        for part in leased:
            self._hand_out(part, lease)
        return leased

    def hold(self, span: Span, chosen: ChosenRecords, key: int) -> None:
        """Let a record that is not free hold up the later ones of its key. It was read again."""
        self._know(span, chosen)
        self._keys.hold(span, key)
        if span.lease is not None:
            self.in_flight += span.records

    def take_back(self, spans: Sequence[Span]) -> None:
        """Undo the hand-out of spans, which no member has got."""
        self.counts.redelivered -= sum(span.records for span in spans if span.attempts > 1)
        self.release(spans)

    def take_back_new(self, cursor: int, ordinal: int) -> None:
        """Undo the hand-out of all that was new above a former cursor, with that of its ordinal."""
        self.finish(self.spans.overlapping(cursor, POINTER_MAX))
        self.cursor, self.ordinal = cursor, ordinal

    # -- settling -------------------------------------------------------------------------------------------

    def find(self, first: int, last: int, token: int) -> list[Span]:
        """Find the spans of the records from a first to a last pointer that have the lease of a token."""
        inside = self._cut(first - 1, last)
        return [span for span in inside if span.lease is not None and span.lease.token == token]

    def ack(self, first: int, last: int, newest: int = 0) -> list[Span]:
        """Find the spans of the records from a first to a last pointer, under a lease or not, to finish.

        Those that have the number of a dead letter are decided: its topic may have them. newest: the newest
        pointer of the topic. Up to there the cursor follows an ack: after a restart it may be behind what was
        handed out before.
        """
        self._advance(min(last, newest))
        return [span for span in self._cut(first - 1, last) if not span.number]

    def finish(self, spans: list[Span]) -> None:
        """Finish the records of some spans, which follow each other in the table."""
        for span in spans:
            self._unlease(span)
            if (following := self._keys.remove(span)) is not None:
                self._queue.add(following)
        self.spans.remove(spans)

    def retry(self, spans: Iterable[Span], reason: str, due: float) -> None:
        """Take spans from their member, to be handed out again at a time, or as dead letters."""
        for span in spans:
            self._unlease(span)
            span.reason = reason
            span.state, span.due = SpanState.FREE, due
            self._add(span)

    def release(self, spans: Iterable[Span]) -> None:
        """Take spans from their member as if they had not been handed out."""
        for span in spans:
            span.attempts -= 1
            self.retry([span], span.reason, 0.0)

    def terminate(self, spans: Iterable[Span], reason: str) -> None:
        """Make dead letters of the records of some spans."""
        for span in spans:
            self._unlease(span)
            span.state, span.reason = SpanState.DYING, reason
            self._queue.add(span)

    def extend(self, spans: list[Span], deadline: float) -> None:
        """Give spans, which have one lease, another deadline."""
        lease = spans[0].lease
        assert lease is not None, "they have a lease"
        part = lease.part(spans)
        part.deadline = deadline
        self._queue.plan(part)

    def expire(self, now: float) -> None:
        """Release the spans whose lease has expired."""
        for lease in self._queue.take_expired(now):
            for span in self.spans.overlapping(lease.after, lease.until):
                if span.lease is lease:
                    self.retry([span], EXPIRED, now + self.settings.delay(span.attempts))

    # -- the whole group ------------------------------------------------------------------------------------

    def moved(self, after: int, ordinal: int) -> GroupState:
        """Return the group in its next generation, which goes on above a pointer without any lease."""
        following = GroupState(
            self.number, self.name, self.settings, after, ordinal, self.generation + 1, self.is_paused,
            self.counts, used=self.used,
        )  # fmt: skip
        following.members = self.members
        return following

    def configure(self, settings: GroupSettings, *, is_paused: bool) -> None:
        """Apply other settings."""
        self.settings, self.is_paused = settings, is_paused
        for span in filter(self._is_exhausted, self.spans):
            self._add(span)

    def begin(self, now: float) -> None:
        """Put all spans where they wait for what comes next, after they were read from the log.

        The members may still work on those that were handed out as often as allowed: for one more lease
        their acks are waited for.
        """
        for span in self.spans:
            if self._is_exhausted(span):
                span.state = SpanState.LEASED
                span.lease = Lease(0, span.member, now + self.settings.lease, span.after, span.until)
                self._queue.plan(span.lease)
            else:
                self._queue.add(span)

    def lose(self, records: int, damaged: int) -> None:
        """Count records that were gone, or damaged, before they could be handed out."""
        self.counts.gone += records
        self.losses.gone += records
        self.losses.damaged += damaged

    # -- dead letters ---------------------------------------------------------------------------------------

    def next_dying(self) -> Span | None:
        """Return the dying span whose turn it is: one that has a number already, else any."""
        return self._queue.next_dying()

    def cut_dying(self, span: Span, until: int, chosen: ChosenRecords) -> Span:
        """Cut a dying span behind the records that were read of it, which become one dead letter."""
        (part,) = self._cut(span.after, until)
        self._know(part, chosen)
        return part

    def number_letter(self, span: Span, number: int) -> None:
        """Give a dying span the number of its dead letter, which is in the log."""
        span.number = self.counts.letters = number
        self._queue.add(span)

    # -- inside ---------------------------------------------------------------------------------------------

    def _know(self, span: Span, chosen: ChosenRecords) -> None:
        """Note the batches of a span, which was read again, and what of it is gone."""
        before = span.records
        self.spans.know(span, chosen.extents)
        self.lose(max(0, before - span.records), 0)

    def _scanned(self, records: int) -> int:
        """Return how many records to read for so many that are wanted."""
        return max(records, KEYS_SCANNED) if self.settings.key_order else records

    def _hand_out(self, span: Span, given: GivenLease) -> None:
        token, name, deadline, most = given
        records = span.records
        if span.attempts:
            self.counts.redelivered += records
        span.attempts += 1
        span.state, span.member = SpanState.LEASED, name
        span.lease = Lease(token, name, deadline, span.after, span.until, deadline_max=most)
        self.in_flight += records
        self.members.add(name, records)
        self._queue.plan(span.lease)

    def _advance(self, cursor: int) -> None:
        """Move the cursor up to a pointer; the records up to there were handed out before a restart."""
        if cursor > self.cursor:
            span = Span(self.cursor, cursor, 0)
            self.spans.append(span)
            self._queue.add(span)
            self.cursor, self.ordinal = cursor, -1

    def _unlease(self, span: Span) -> None:
        """Take a span from its member."""
        lease, span.lease = span.lease, None
        if lease is None:
            return
        lease.spans -= 1
        records = max(0, span.records)
        self.in_flight -= records
        self.members.add(lease.member, -records)

    def _add(self, span: Span) -> None:
        """Put a span where it waits; one that was handed out as often as allowed becomes a dead letter."""
        if self._is_exhausted(span):
            span.state, span.reason = SpanState.DYING, span.reason or EXHAUSTED
        self._queue.add(span)

    def _is_exhausted(self, span: Span) -> bool:
        most = self.settings.max_attempts
        return span.state is SpanState.FREE and 0 < most <= span.attempts

    def _cut(self, after: int, until: int) -> list[Span]:
        """Cut the spans at two pointers, register the parts, and return those between."""
        inside, made = self.spans.cut(after, until)
        for span in made:
            self._queue.add(span)
        return inside


def _capacity(group: GroupState, in_flight_max: int, count: Callable[[list[Span]], int]) -> int:
    """Return how many new records a group may get; arguments as for `GroupState.next_hand_out`."""
    spans, settings = group.spans, group.settings
    room = min(settings.max_in_flight, in_flight_max) - spans.known
    if settings.key_order or len(spans) >= RANGES_MAX:  # with an order by key each record becomes a span
        room = min(room, RANGES_MAX - len(spans))
    if spans.unknown:
        room -= count([span for span in spans if span.extents is None])
    return room
