"""Ranges through a broker: counted, divided and advanced over without reading, and fetched to their end."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, hibernates, refused
from kit.deadlines import eventually
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import (
    AdvanceTopic,
    CountTopic,
    Fetch,
    Hello,
    Operation,
    RollTopic,
    SplitTopic,
    TrimTopic,
)
from quothwire.protocol.operations import Request

RANGE_REQUESTS: tuple[Request, ...] = (AdvanceTopic(), SplitTopic(parts=3), CountTopic())


def filled(fast: FastPeer, topic: str, segments: int = 4) -> list[int]:
    """Batches of 1 to 5 records in some sealed segments and the active one; all their pointers."""
    pointers: list[int] = []
    for row in range(segments):
        for count in (1, 5, 2):
            done = fast.publish(topic, [b"x"] * count)
            pointers += range(done.first, done.last + 1)
        if row < segments - 1:
            fast.call(RollTopic(), topic)
    return pointers


def test_a_range_is_counted_advanced_over_and_split(fast: FastPeer, topic: str, seed: int) -> None:
    rng, pointers = random.Random(seed), filled(fast, topic)
    for _ in range(20):
        low, high = sorted(rng.sample(range(len(pointers)), 2))
        after, until = pointers[low], pointers[high]
        counted = fast.call(CountTopic(after, until), topic)
        assert (counted.records, counted.first, counted.last) == (high - low, pointers[low + 1], until)
        assert fast.call(AdvanceTopic(after, high - low), topic).until == until
        parts = fast.call(SplitTopic(after, until, 3), topic).bounds
        assert sum(records for _, _, records, _ in parts) == high - low
        assert (parts[0][0], parts[-1][1]) == (after, until)
        assert all(one[1] == other[0] for one, other in pairwise(parts))
    whole = fast.call(CountTopic(), topic)
    assert (whole.records, whole.newest, whole.end, whole.gone) == (32, pointers[-1], 32, 0)
    assert whole.bytes == fast.call(AdvanceTopic(), topic).bytes
    assert whole.log == fast.describe(topic).log


def test_a_hibernating_topic_opens_for_a_range_request(peers: Peers, start_broker: StartBroker) -> None:
    broker = start_broker("--worker-timeout", "0.05")
    fast = peers.fast(broker)
    pointers = filled(fast, "t")
    for request in RANGE_REQUESTS:
        eventually(lambda: hibernates(fast), "it hibernates")
        reply = fast.call(request, "t")
        assert (reply.newest, reply.end) == (pointers[-1], len(pointers))


def test_a_range_of_an_unknown_topic_is_refused(fast: FastPeer) -> None:
    for request in RANGE_REQUESTS:
        with refused("unknown_topic"):
            fast.call(request, "there is none")


NO_RANGES: dict[str, list[Request]] = {
    "bad_request": [
        CountTopic(6, 5), SplitTopic(6, 5, 1), SplitTopic(0, 5, 0), CountTopic(6, 0), SplitTopic(0, 5, -1),
        AdvanceTopic(0, 0, 1), AdvanceTopic(0, 1, 0), CountTopic(-1), Fetch(6, until=5),
        SplitTopic(0, 5, True), AdvanceTopic(0, True), Fetch(0, until=-1),
        Fetch(6, wait_ms=60_000, until=5),
    ],
    "too_large": [SplitTopic(0, 5, 10_001), AdvanceTopic(0, 2**63, 1)],
    "bad_pointer": [AdvanceTopic(POINTER_MAX + 1), CountTopic(0, POINTER_MAX + 1)],
}  # fmt: skip


@pytest.mark.parametrize("code", NO_RANGES)
def test_an_invalid_range_is_refused(fast: FastPeer, topic: str, code: str) -> None:
    fast.publish(topic, [b"x"])
    for request in NO_RANGES[code]:
        assert code_of(fast.request(request, topic)) == code, request
    assert fast.call(CountTopic(), topic).records == 1


def test_hello_lists_the_operations(fast: FastPeer) -> None:
    assert {"advance", "split", "count"} <= set(fast.call(Hello()).operations)
    assert len(fast.call(Hello()).operations) == len(Operation)


# -- fetch.until --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_max", [1, 200, 2**20])
def test_a_fetch_ends_with_the_batch_in_which_its_range_ends(
    fast: FastPeer, topic: str, seed: int, bytes_max: int
) -> None:
    """A reader whose `next` has reached the end has read the range."""
    rng, pointers = random.Random(seed), filled(fast, topic)
    for _ in range(20):
        low, high = sorted(rng.sample(range(len(pointers)), 2))
        after, until = pointers[low], pointers[high]
        found: list[int] = []
        following = after
        while following < until:
            part = fast.fetch(topic, following, until=until, bytes_max=bytes_max)
            assert part.records, "a request for nothing"
            found += [record.pointer for record in part.records]
            following = part.reply.next
        assert [one for one in found if one <= until] == pointers[low + 1 : high + 1]
        assert len([one for one in found if one > until]) < 5, "a batch behind the end"


def test_an_end_between_two_records_is_reached_with_the_one_before_it(fast: FastPeer, topic: str) -> None:
    first, second = (fast.publish(topic, [b"x"]).last for _ in range(2))
    fast.call(RollTopic(), topic)
    third = fast.publish(topic, [b"x"]).last
    found = fast.fetch(topic, 0, until=second - 1)
    assert ([one.pointer for one in found.records], found.reply.next) == ([first], second - 1)
    nothing = fast.fetch(topic, second, until=third - 1)
    assert (nothing.records, nothing.reply.next, nothing.reply.gone) == ([], third - 1, 0)


def test_a_trimmed_range_ends_at_once_with_the_number_of_gone_records(fast: FastPeer, topic: str) -> None:
    pointers = filled(fast, topic)
    fast.call(TrimTopic(pointers[-1] + 1), topic)
    fast.publish(topic, [b"x"])
    for more in ({}, {"wait_ms": 60_000}):
        found = fast.fetch(topic, pointers[3], until=pointers[8], **more)
        assert (found.records, found.reply.next) == ([], pointers[8])
        assert found.reply.gone > 0
    reply = fast.call(AdvanceTopic(pointers[3], 10), topic)
    assert (reply.gone, reply.records, reply.after) == (32, 1, pointers[-1])
    assert fast.call(CountTopic(pointers[3], pointers[8]), topic).records == 0
    assert fast.call(SplitTopic(pointers[3], pointers[8], 4), topic).bounds == []


def test_a_fetch_of_a_range_waits_only_for_what_may_still_come(fast: FastPeer, topic: str) -> None:
    last = fast.publish(topic, [b"x"]).last
    assert fast.fetch(topic, last, until=last, wait_ms=60_000).reply.next == last
    waiting = fast.send_fetch(topic, last, until=POINTER_MAX - 1, wait_ms=60_000)
    eventually(lambda: fast.status().waits == 1, "it waits")
    fast.publish(topic, [b"y"])
    answer = fast.answer_to(waiting)
    assert answer.payload


# -- what it costs others -----------------------------------------------------------------------------------


def test_a_publish_overtakes_range_requests(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """A reader thread answers them, so a publish behind them is acknowledged before the last of them."""
    fast = peers.fast(broker)
    for _ in range(300):
        fast.publish(topic, [b"x"] * 4)
        fast.call(RollTopic(), topic)
    eventually(lambda: not fast.status().states[topic].count("r"), "its segments are closed")
    asked = [fast.send(SplitTopic(parts=10_000), topic) for _ in range(20)]
    published = fast.send_publish(topic, [b"y"])
    order = [fast.receive().correlation for _ in range(21)]
    assert set(order) == {*asked, published}
    assert order.index(published) < 20, "it came behind all of them"
