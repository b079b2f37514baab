"""Events of groups: a replay gives the group again, and without any one of them finishes nothing more."""

from __future__ import annotations

from dataclasses import astuple

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.groups.group_history import GroupCall, GroupHistory, history_of, replayed
from kit.scale import times
from quothlog.groups import events
from quothlog.groups.events import Replay

places = st.tuples(st.integers(1, 60), st.integers(0, 6)).map(lambda at: (at[0], at[0] + at[1]))
acts = st.one_of(
    st.tuples(st.just("hand_out_new"), st.tuples(st.integers(1, 6))),
    st.tuples(st.just("hand_out_again"), st.tuples(st.integers(0, 5))),
    st.tuples(st.sampled_from(["ack", "ack", "nack", "release", "terminate"]), places),
    st.tuples(st.sampled_from(["send_letter", "finish_letter", "snapshot"]), st.just(())),
)


@settings(max_examples=times(300, 20_000))
@given(st.lists(acts, max_size=25))
def test_a_replay_gives_the_records_that_are_not_finished(calls: list[GroupCall]) -> None:
    """With their attempts, and the dead letters that are on their way."""
    history = history_of(calls)
    group, found = history.group, replayed(history.logged)
    assert found is not None
    assert found.counts.dead == group.counts.dead
    assert found.counts.letters == group.counts.letters
    before, after = history.states(group), history.states(found)
    assert history.unfinished(found) == history.unfinished(group)
    assert after == before
    again = replayed([events.snapshot(found)])
    assert again is not None
    assert history.states(again) == after
    assert (again.cursor, again.ordinal, astuple(again.counts)) == (
        found.cursor, found.ordinal, astuple(found.counts)
    )  # fmt: skip


@settings(max_examples=times(100, 5_000))
@given(st.lists(acts, max_size=25))
def test_without_any_one_event_nothing_more_is_finished(calls: list[GroupCall]) -> None:
    """Records may come twice where the log is damaged, and are never lost."""
    history = history_of(calls)
    expected = history.unfinished(history.group)
    for row in range(len(history.logged)):
        found = replayed(history.logged[:row] + history.logged[row + 1 :])
        assert found is not None, "each snapshot is there twice"
        assert history.unfinished(found) >= expected, f"without event {row}"


@settings(max_examples=times(100, 5_000))
@given(st.lists(acts, max_size=25))
def test_the_ordinal_at_the_cursor_is_known_after_a_restart(calls: list[GroupCall]) -> None:
    """Retention is counted exactly by that."""
    history = history_of(calls)
    found = replayed(history.logged)
    assert found is not None
    below = sum(last - first + 1 for first, last in history.records(0, found.cursor))
    assert found.ordinal == below


def test_acks_in_any_order_are_told_in_the_order_of_their_pointers() -> None:
    """Ranges in another order would finish too little, or what lies between."""
    history = GroupHistory()
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
    (found,) = replay.finish(0.0)
    assert history.unfinished(found) == history.unfinished(history.group)


def test_a_snapshot_that_is_too_large_leaves_reasons_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the records, nor the numbers of their letters."""
    history = history_of([("terminate", (10, 12)), ("send_letter", ())])
    monkeypatch.setattr(events, "SPANS_BYTES_MAX", 10)
    found = replayed([events.snapshot(history.group)])
    assert found is not None
    kept = {at: (row[0], *row[1:2]) for at, row in history.states(history.group).items()}
    assert {at: (row[0], *row[1:2]) for at, row in history.states(found).items()} == kept
    assert {row[2] for row in history.states(found).values() if len(row) > 1} == {""}


def test_many_rejected_records_fit_into_one_batch_without_their_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = history_of([("terminate", (10, 12))])
    spans = history.group.spans.dying()
    monkeypatch.setattr(events, "SPANS_BYTES_MAX", 500)
    assert spans
    short, long = (events.terminated(history.group, spans, reason) for reason in ("short", "long" * 200))
    assert [msgpack.unpackb(one)[7] for one in short] == ["short"] * len(spans)
    assert [msgpack.unpackb(one)[7] for one in long] == [""] * len(spans)
