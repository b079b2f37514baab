"""A group at work in memory, with the events that a broker logs of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quothlog.groups import events
from quothlog.groups.events import Replay
from quothlog.groups.group_state import GivenLease, GroupState
from quothlog.groups.selection import ChosenRecords
from quothlog.groups.spans import Extents, Span, SpanState
from quothwire.protocol.group_settings import GroupSettings

GAP = 10
"""Pointers between two batches, at which there is no record."""
NOW = 5.0


def group_of(**given_settings: object) -> GroupState:
    return GroupState(1, "g", GroupSettings.of({"backoff": [0.0], "max_attempts": 0, **given_settings}), 0, 0)


def replayed(logged: Iterable[bytes]) -> GroupState | None:
    """The group that events give, None if they have no snapshot of it."""
    replay = Replay()
    for event in logged:
        replay.apply(event, 1)
    return next(replay.finish(0.0), None)


@dataclass
class GroupHistory:
    """A group, and its events. batches: the first and the last pointer of each."""

    group: GroupState = field(default_factory=group_of)
    logged: list[bytes] = field(default_factory=list)
    batches: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshot()

    def snapshot(self) -> None:
        self.logged += [events.snapshot(self.group)] * 2

    def records(self, after: int, until: int) -> list[tuple[int, int]]:
        """The parts of batches between two pointers."""
        cut = [(max(first, after + 1), min(last, until)) for first, last in self.batches]
        return [(first, last) for first, last in cut if first <= last]

    def records_in(self, after: int, until: int) -> ChosenRecords:
        rows = self.records(after, until)
        count = sum(last - first + 1 for first, last in rows)
        below = sum(last - first + 1 for first, last in self.records(0, rows[-1][1]))
        extents = Extents(after, [first for first, _ in rows], [last for _, last in rows])
        return ChosenRecords(count, rows[-1][1], below, extents, [])

    def act(self, name: str, *arguments: int) -> list[bytes]:
        """Act once; returns the events that are logged of it, a snapshot only once."""
        before = len(self.logged)
        getattr(self, name)(*arguments)
        return [*dict.fromkeys(self.logged[before:])]

    # -- acts of a broker -----------------------------------------------------------------------------------

    def hand_out_new(self, records: int) -> None:
        first = (self.batches[-1][1] if self.batches else 0) + GAP
        self.batches.append((first, first + records - 1))
        self.group.lease_new(self.records_in(self.group.cursor, first + records - 1), self.lease())
        self.logged.append(events.settled(self.group, []))

    def hand_out_again(self, row: int) -> None:
        free = [span for span in self.group.spans if span.state is SpanState.FREE]
        if free:
            span = free[row % len(free)]
            again = self.group.lease_again(
                span, span.until, self.records_in(span.after, span.until), self.lease()
            )
            self.logged += [events.attempted(self.group, [again]), events.settled(self.group, [])]

    def ack(self, first: int, last: int) -> None:
        spans = self.group.ack(first, last)
        if spans:
            self.logged.append(events.settled(self.group, spans))
            self.group.finish(spans)

    def nack(self, first: int, last: int) -> None:
        self.group.retry(self.held(first, last), "a reason", 0.0)

    def release(self, first: int, last: int) -> None:
        held = self.held(first, last)
        self.logged += [events.settled(self.group, []), events.attempted(self.group, held, -1)]
        self.group.release(held)

    def terminate(self, first: int, last: int) -> None:
        held = self.held(first, last)
        dying = [events.dying(self.group, span, 0, "rejected") for span in held]
        self.logged += [events.settled(self.group, []), *dying]
        self.group.terminate(held, "rejected")

    def send_letter(self) -> None:
        span = self.group.next_dying()
        if span is not None and not span.number:
            span = self.group.cut_dying(span, span.until, self.records_in(span.after, span.until))
            number = self.group.counts.letters + 1
            self.logged += [
                events.settled(self.group, []),
                events.dying(self.group, span, number, span.reason),
            ]
            self.group.number_letter(span, number)

    def finish_letter(self) -> None:
        span = self.group.next_dying()
        if span is not None and span.number:
            self.group.counts.dead += span.records
            self.logged.append(events.settled(self.group, [span]))
            self.group.finish([span])

    def held(self, first: int, last: int) -> list[Span]:
        return [span for span in self.group._cut(first - 1, last) if span.state is SpanState.LEASED]

    def lease(self) -> GivenLease:
        return GivenLease(7, "m", NOW)

    # -- its records ----------------------------------------------------------------------------------------

    def states(self, group: GroupState) -> dict[int, tuple[object, ...]]:
        """Return the state that a restart leaves of each record that is handed out and not finished."""
        found: dict[int, tuple[object, ...]] = {}
        for span in group.spans:
            dying = (span.number, span.reason) if span.state is SpanState.DYING else ()
            for first, last in self.records(span.after, span.until):
                found |= dict.fromkeys(range(first, last + 1), (span.attempts, *dying))
        return found

    def unfinished(self, group: GroupState) -> set[int]:
        above = [one for first, last in self.records(group.cursor, 2**56) for one in range(first, last + 1)]
        return {*self.states(group), *above}


GroupCall = tuple[str, tuple[int, ...]]
"""The name of an act of a history, and its arguments."""


def history_of(calls: Sequence[GroupCall]) -> GroupHistory:
    """A history that begins with two batches."""
    history = GroupHistory()
    for name, arguments in (("hand_out_new", (4,)), ("hand_out_new", (3,)), *calls):
        history.act(name, *arguments)
    return history
