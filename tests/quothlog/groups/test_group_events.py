"""Events of groups: a replay gives the group again, and without any one of them finishes nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.scale import times
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
    return next(replay.finish(), None)


@dataclass
class History:
    """A group at work, with the events that a broker logs of it.

    batches: the first and the last pointer of each.
    """

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

    def chosen(self, after: int, until: int) -> ChosenRecords:
        rows = self.records(after, until)
        count = sum(last - first + 1 for first, last in rows)
        below = sum(last - first + 1 for first, last in self.records(0, rows[-1][1]))
        extents = Extents(after, [first for first, _ in rows], [last for _, last in rows])
        return ChosenRecords(count, rows[-1][1], below, extents, [])

    # -- acts of a broker -----------------------------------------------------------------------------------

    def hand_out_new(self, records: int) -> None:
        first = (self.batches[-1][1] if self.batches else 0) + GAP
        self.batches.append((first, first + records - 1))
        self.group.lease_new(self.chosen(self.group.cursor, first + records - 1), self.lease())

    def hand_out_again(self, row: int) -> None:
        free = [span for span in self.group.spans if span.state is SpanState.FREE]
        if free:
            span = free[row % len(free)]
            again = self.group.lease_again(
                span, span.until, self.chosen(span.after, span.until), self.lease()
            )
            self.logged += [events.attempted(self.group, [again]), events.settled(self.group, [])]

    def ack(self, first: int, last: int) -> None:
        spans = self.group.ack(first, last)
        if spans:
            self.logged.append(events.settled(self.group, spans))
            self.group.finish(spans)

    def release(self, first: int, last: int) -> None:
        held = self.held(first, last)
        self.group.release(held, "a reason", 0.0)

    def terminate(self, first: int, last: int) -> None:
        held = self.held(first, last)
        dying = [events.dying(self.group, span, 0, "rejected") for span in held]
        self.logged += [events.settled(self.group, []), *dying]
        self.group.terminate(held, "rejected")

    def send_letter(self) -> None:
        span = self.group.next_dying()
        if span is not None and not span.number:
            span = self.group.cut_dying(span, span.until, self.chosen(span.after, span.until))
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
        """What a restart has to leave of each record that was handed out and is not finished."""
        found: dict[int, tuple[object, ...]] = {}
        for span in group.spans:
            dying = (span.number, span.reason) if span.state is SpanState.DYING else ()
            for first, last in self.records(span.after, span.until):
                found |= dict.fromkeys(range(first, last + 1), (span.attempts, *dying))
        return found

    def unfinished(self, group: GroupState) -> set[int]:
        above = [one for first, last in self.records(group.cursor, 2**56) for one in range(first, last + 1)]
        return {*self.states(group), *above}


places = st.tuples(st.integers(1, 60), st.integers(0, 6)).map(lambda at: (at[0], at[0] + at[1]))
acts = st.one_of(
    st.tuples(st.just("hand_out_new"), st.tuples(st.integers(1, 6))),
    st.tuples(st.just("hand_out_again"), st.tuples(st.integers(0, 5))),
    st.tuples(st.sampled_from(["ack", "ack", "release", "terminate"]), places),
    st.tuples(st.sampled_from(["send_letter", "finish_letter", "snapshot"]), st.just(())),
)


def history_of(calls: Sequence[tuple[str, tuple[int, ...]]]) -> History:
    history = History()
    history.hand_out_new(4)
    history.hand_out_new(3)
    for name, arguments in calls:
        getattr(history, name)(*arguments)
    return history


@settings(max_examples=times(300, 20_000), deadline=None)
@given(st.lists(acts, max_size=25))
def test_a_replay_gives_the_records_that_are_not_finished(calls: list[tuple[str, tuple[int, ...]]]) -> None:
    """With their attempts, from the second on, and the dead letters that are on their way."""
    history = history_of(calls)
    group, found = history.group, replayed(history.logged)
    assert found is not None
    assert found.counts.dead == group.counts.dead
    assert found.counts.letters == group.counts.letters
    before, after = history.states(group), history.states(found)
    assert history.unfinished(found) == history.unfinished(group)
    for pointer, (attempts, *dying) in before.items():
        if pointer in after:
            assert after[pointer] == (attempts, *dying)
        else:
            assert (attempts, dying) == (1, []), "a first hand-out is not logged"
    again = replayed([events.snapshot(found)])
    assert again is not None
    assert history.states(again) == after
    assert (again.cursor, again.ordinal, astuple(again.counts)) == (
        found.cursor, found.ordinal, astuple(found.counts)
    )  # fmt: skip


@settings(max_examples=times(100, 5_000), deadline=None)
@given(st.lists(acts, max_size=25))
def test_without_any_one_event_nothing_more_is_finished(calls: list[tuple[str, tuple[int, ...]]]) -> None:
    """Records may come twice where the log is damaged, and are never lost."""
    history = history_of(calls)
    expected = history.unfinished(history.group)
    for row in range(len(history.logged)):
        found = replayed(history.logged[:row] + history.logged[row + 1 :])
        assert found is not None, "each snapshot is there twice"
        assert history.unfinished(found) >= expected, f"without event {row}"


@settings(max_examples=times(100, 5_000), deadline=None)
@given(st.lists(acts, max_size=25))
def test_the_ordinal_at_the_cursor_is_known_after_a_restart(calls: list[tuple[str, tuple[int, ...]]]) -> None:
    """So what retention has removed is counted exactly."""
    history = history_of(calls)
    found = replayed(history.logged)
    assert found is not None
    below = sum(last - first + 1 for first, last in history.records(0, found.cursor))
    assert found.ordinal == below


def test_acks_in_any_order_are_told_in_the_order_of_their_pointers() -> None:
    """Ranges in another order would finish too little, or what lies between."""
    history = History()
    history.hand_out_new(10)
    spans = [span for pointer in (18, 11, 13) for span in history.group.ack(pointer, pointer)]
    history.logged.append(events.settled(history.group, spans))
    for span in spans:
        history.group.finish([span])
    found = replayed(history.logged)
    assert found is not None
    assert {*history.states(found)} == {*range(10, 20)} - {18, 11, 13}


@pytest.mark.parametrize(
    "event",
    [
        b"", b"\xc1", msgpack.packb([]), msgpack.packb([9, 1]), msgpack.packb([2, 1]),
        msgpack.packb([2, 1, 1]),
        msgpack.packb([2, 5, 1, 3, 3, [], [0, 0, 0, 0]]), msgpack.packb([1, 1, "g"]), msgpack.packb("text"),
        msgpack.packb([2, 1, 1, 99, 3, [5], [0, 0, 0, 0]]), msgpack.packb([3, 1, 1, [1, 2]]),
        msgpack.packb([1, 2, "h", {"mode": "unknown"}, 1, False, 0, 0, [0, 0, 0, 0], 0, []]),
        msgpack.packb([1, 2, "h", None, 1, False, 0, 0, [0, 0, 0, 0], 0, []]),
        msgpack.packb([1, 2, "h", {"backoff": 5}, 1, False, 0, 0, [0, 0, 0, 0], 0, []]),
        msgpack.packb([1, 2, "h", {"backoff": [[]]}, 1, False, 0, 0, [0, 0, 0, 0], 0, []]),
    ],
    ids=lambda event: event.hex()[:20],
)  # fmt: skip
def test_an_event_that_means_nothing_costs_no_other_one(event: bytes) -> None:
    """One that a later version has written, for instance."""
    history = history_of([("ack", (11, 11))])
    replay = Replay()
    for one in (*history.logged, event):
        replay.apply(one, 1)
    assert replay.failed == 1
    (found,) = replay.finish()
    assert history.unfinished(found) == history.unfinished(history.group)
