"""Merging topics by time: the merge alone, with whatever it may be given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth import Batch, Gap, Message
from quoth.merging.merge import TopicMerge
from quoth.merging.rounds import TO_COME, Rounds, Take
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Pong


def batch(topic: str, first: int, records: int = 1) -> Batch:
    """Consecutive records of a topic."""
    return Batch(topic, first, 0, [b"%d" % number for number in range(records)], None, None)


def taken(merge: TopicMerge) -> list[tuple[int, str]]:
    """Take what it hands out now, as pointers and topics."""
    runs = merge.take()
    return [(one.pointer, one.topic) for run in runs if isinstance(run, list) for one in run]


@pytest.fixture
def merge() -> TopicMerge:
    """A merge of two topics."""
    merge = TopicMerge(ordered=True)
    merge.add("a")
    merge.add("b")
    return merge


def test_a_record_is_delayed_until_no_older_one_can_come(merge: TopicMerge) -> None:
    merge.push("a", batch("a", 5))
    assert taken(merge) == []
    assert (merge.held, merge.behind(5), merge.watermark) == (5, ["b"], 0)
    merge.settle("b", 4)
    assert taken(merge) == []
    merge.settle("b", 5)
    assert taken(merge) == [(5, "a")]
    assert (merge.held, merge.watermark) == (None, 5)


def test_an_ended_topic_delays_no_record(merge: TopicMerge) -> None:
    merge.push("a", batch("a", 5))
    merge.push("b", batch("b", 4))
    merge.end("b")
    assert taken(merge) == [(4, "b"), (5, "a")]
    merge.push("a", batch("a", 6))
    assert taken(merge) == [(6, "a")]


def test_a_topic_that_is_added_late_is_merged(merge: TopicMerge) -> None:
    merge.settle("b", 100)
    merge.push("a", batch("a", 5))
    merge.add("c")
    assert taken(merge) == []
    merge.push("c", batch("c", 4))
    assert taken(merge) == [(4, "c")]


def test_late_records_are_returned_at_once_and_counted(merge: TopicMerge) -> None:
    merge.settle("b", 10)
    merge.push("a", batch("a", 8))
    assert taken(merge) == [(8, "a")]
    merge.push("b", batch("b", 3, 2))
    assert taken(merge) == [(3, "b"), (4, "b")]
    assert merge.late == 2


def test_a_gap_comes_before_what_follows_it(merge: TopicMerge) -> None:
    gap = Gap("a", 5, 9, 3, "trimmed")
    merge.push("a", batch("a", 5))
    merge.push("a", gap)
    merge.push("a", batch("a", 9))
    merge.end("b")
    first, then, last = merge.take()
    assert isinstance(first, list)
    assert isinstance(last, list)
    assert ([one.pointer for one in first], then, [one.pointer for one in last]) == ([5], gap, [9])


def test_an_unordered_merge_delays_no_record() -> None:
    merge = TopicMerge(ordered=False)
    merge.add("a")
    merge.add("b")
    merge.push("a", batch("a", 5))
    assert taken(merge) == [(5, "a")]
    merge.push("b", batch("b", 4))
    assert taken(merge) == [(4, "b")]
    assert merge.late == 0, "there is no order that it breaks"


POINTERS = st.lists(st.integers(1, 30), unique=True, max_size=12).map(sorted)


@given(
    left=st.dictionaries(st.sampled_from("abcd"), POINTERS, min_size=1),
    moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=60),
)
def test_random_batches_are_merged_in_the_order_of_their_pointers(
    left: dict[str, list[int]], moves: list[tuple[int, int]]
) -> None:
    """Topics bring their records in any turn, and settle what they may; everything comes out, in order."""
    expected = sorted((pointer, topic) for topic, pointers in left.items() for pointer in pointers)
    merge = TopicMerge(ordered=True)
    for topic in left:
        merge.add(topic)
    found: list[tuple[int, str]] = []
    for number, settled in moves:
        topic = list(left)[number % len(left)]
        following = left[topic][0] if left[topic] else POINTER_MAX
        if settled < following:
            merge.settle(topic, settled)
        else:
            merge.push(topic, batch(topic, left[topic].pop(0)))
        found += taken(merge)
        assert found == expected[: len(found)]
        assert not found or merge.watermark >= found[-1][0] - 1
    for topic, pointers in left.items():
        for pointer in pointers:
            merge.push(topic, batch(topic, pointer))
        merge.end(topic)
    assert found + taken(merge) == expected
    assert (merge.late, merge.held) == (0, None)


def test_a_merged_message_is_equal_to_that_of_its_batch(merge: TopicMerge) -> None:
    merge.push("a", Batch("a", 5, 0, [b"v"], [b"k"], None))
    merge.settle("b", POINTER_MAX)
    assert merge.take() == [[Message("a", 5, b"v", b"k", {})]]


def test_a_round_with_a_part_of_the_names_settles_no_topic_to_come() -> None:
    """A broker that refuses to list them may have a topic with older records."""
    merge = TopicMerge(ordered=True)
    merge.add(TO_COME)
    takes: list[Take] = []
    lists: list[Callable[[float, bool], None]] = []
    rounds = Rounds(merge, {}, lambda _request, _topic, take: takes.append(take), lists.append)
    for clock, is_whole, settled in ((5, False, 0), (7, True, 7)):
        rounds.begin(float(clock), 0.0)
        takes.pop()("", Answer(1, Pong(clock), b""), float(clock))
        lists.pop()(float(clock), is_whole)
        assert merge.watermark == settled
