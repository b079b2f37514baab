"""A producer that sends a batch again stores it once, also after a restart or a crash."""

from __future__ import annotations

import random
import signal

import pytest

from kit.broker.brokers import BrokerProcess, Restart, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, hibernates, refused, replied
from kit.deadlines import eventually
from kit.disk.logs import encoded
from kit.scale import times
from quothlog.producers import RESULTS_MAX
from quothwire.protocol.messages import DeleteTopic, Publish, Published, RollTopic

ALICE, BOB = 2**64 - 1, 7


@pytest.mark.parametrize("sparse", [False, True])
def test_a_repeated_publish_gets_its_first_pointers(
    broker: BrokerProcess, fast: FastPeer, topic: str, restart: Restart, sparse: bool
) -> None:
    """The reply is marked as a duplicate, and nothing is stored again."""
    step = 10 if sparse else 1
    raws = [
        encoded([b"%d" % i, b"x"], ALICE, 1 + i * step, sparse=sparse, start=sparse and i == 0)
        for i in range(5)
    ]
    firsts = [fast.call(Publish(), topic, raw) for raw in raws]
    assert [one.duplicate for one in firsts] == [False] * 5
    restart(broker)
    for raw, first in zip(raws, firsts, strict=True):
        again = fast.call(Publish(), topic, raw)
        assert (again.first, again.last, again.count, again.duplicate) == (first.first, first.last, 2, True)
    assert (
        fast.publish(topic, [b"new"], producer=ALICE, sequence=1 + 5 * step, sparse=sparse).duplicate is False
    )
    assert len(fast.read_all(topic)) == 11


def test_a_gap_stores_nothing(broker: BrokerProcess, fast: FastPeer, topic: str, restart: Restart) -> None:
    """`out_of_sequence`, which can be tried again once the missing batch is there."""
    fast.publish(topic, [b"1"], producer=ALICE, sequence=1)
    restart(broker)
    for sequence in (3, 4, 100, 2**64 - 1):
        with refused("out_of_sequence"):
            fast.publish(topic, [b"%d" % sequence], producer=ALICE, sequence=sequence)
    fast.publish(topic, [b"2"], producer=ALICE, sequence=2)
    fast.publish(topic, [b"3"], producer=ALICE, sequence=3)
    assert [record.value for record in fast.read_all(topic)] == [b"1", b"2", b"3"]


def test_a_pipeline_with_a_gap_is_stored_in_order_when_it_is_sent_again(fast: FastPeer, topic: str) -> None:
    """All batches behind the gap are refused."""
    raws = [encoded([b"%d" % i], ALICE, i) for i in range(1, 31)]
    without = [raw for i, raw in enumerate(raws, 1) if i != 5]
    asked = [fast.send(Publish(), topic, raw) for raw in without]
    codes = [code_of(answer) for answer in fast.answers_to(asked)]
    assert codes == [""] * 4 + ["out_of_sequence"] * 25
    asked = [fast.send(Publish(), topic, raw) for raw in raws]
    replies = [replied(answer) for answer in fast.answers_to(asked)]
    assert [one.duplicate for one in replies] == [True] * 4 + [False] * 26
    assert [record.value for record in fast.read_all(topic)] == [b"%d" % i for i in range(1, 31)]


def test_a_pipeline_above_the_request_limit_is_stored_once(start_broker: StartBroker, peers: Peers) -> None:
    """Some batches are refused as `busy`, and sent again until all are stored."""
    broker = start_broker(topic_requests_max=10)
    fast = peers.fast(broker)
    count = times(600, 10_000)
    left = [(encoded([b"%d" % i], ALICE, i), i) for i in range(1, count + 1)]
    codes: set[str] = set()
    while left:
        window = left[:RESULTS_MAX]
        asked = [fast.send(Publish(), "t", raw) for raw, _ in window]
        outcomes = [code_of(answer) for answer in fast.answers_to(asked)]
        codes.update(outcomes)
        stored = outcomes.index(next(filter(None, outcomes), "")) if any(outcomes) else len(window)
        left = left[stored:]
    assert {"", "busy"} <= codes <= {"", "busy", "out_of_sequence"}
    assert [record.value for record in fast.read_all("t")] == [b"%d" % i for i in range(1, count + 1)]


def test_an_unknown_producer_begins_with_sequence_1_or_a_start(fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"x"])
    with refused("unknown_producer"):
        fast.publish(topic, [b"x"], producer=ALICE, sequence=2)
    with refused("unknown_producer"):
        fast.publish(topic, [b"x"], producer=ALICE, sequence=5, sparse=True)
    fast.publish(topic, [b"x"], producer=ALICE, sequence=5, sparse=True, start=True)
    fast.publish(topic, [b"x"], producer=BOB, sequence=1)
    assert len(fast.read_all(topic)) == 3


def test_a_sequence_with_other_bytes_is_refused(fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"one"], producer=ALICE, sequence=1)
    with refused("sequence_reused"):
        fast.publish(topic, [b"two"], producer=ALICE, sequence=1)
    with refused("sequence_reused"):
        fast.publish(topic, [b"one", b"one"], producer=ALICE, sequence=1)
    assert [record.value for record in fast.read_all(topic)] == [b"one"]


def test_a_sequence_below_the_remembered_ones_is_not_stored_again(fast: FastPeer, topic: str) -> None:
    for i in range(1, RESULTS_MAX + 6):
        fast.publish(topic, [b"%d" % i], producer=ALICE, sequence=i)
    with refused("forgotten_sequence"):
        fast.publish(topic, [b"1"], producer=ALICE, sequence=1)
    assert fast.publish(topic, [b"6"], producer=ALICE, sequence=6).duplicate
    assert len(fast.read_all(topic)) == RESULTS_MAX + 5


def test_a_batch_with_a_producer_and_no_sequence_or_the_reverse_is_refused(
    fast: FastPeer, topic: str
) -> None:
    for producer, sequence in ((0, 1), (1, 0)):
        with refused("bad_batch"):
            fast.publish(topic, [b"x"], producer=producer, sequence=sequence)


def test_each_producer_has_a_sequence_of_its_own(fast: FastPeer, topic: str) -> None:
    """Batches of ten producers and rolls in one pipeline."""
    asked = []
    for sequence in range(1, 21):
        for producer in range(1, 11):
            value = b"%d %d" % (producer, sequence)
            asked.append(fast.send_publish(topic, [value], producer=producer, sequence=sequence))
        asked.append(fast.send(RollTopic(), topic))
    for answer in fast.answers_to(asked):
        replied(answer)
    values = [record.value for record in fast.read_all(topic)]
    for producer in range(1, 11):
        own = [value for value in values if value.startswith(b"%d " % producer)]
        assert own == [b"%d %d" % (producer, sequence) for sequence in range(1, 21)]


def test_a_topic_created_again_knows_no_producer(fast: FastPeer, topic: str) -> None:
    old = fast.publish(topic, [b"1"], producer=ALICE, sequence=1)
    fast.call(DeleteTopic(), topic)
    with refused("unknown_producer"):
        fast.publish(topic, [b"x"], producer=ALICE, sequence=2)
    new = fast.publish(topic, [b"1"], producer=ALICE, sequence=1)
    assert not new.duplicate
    assert new.log != old.log


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_pipeline_through_crashes_or_restarts_is_stored_once(
    start_broker: StartBroker, peers: Peers, rng: random.Random, number: int
) -> None:
    """Acknowledged batches are there, the others are sent again."""
    broker = start_broker()
    fast = peers.fast(broker)
    count = times(600, 20_000)
    raws = {i: encoded([b"%d %d" % (i, j) for j in range(3)], ALICE, i) for i in range(1, count + 1)}
    acknowledged: dict[int, Published] = {}
    sequence = 1
    restarts = 0
    while sequence <= count:
        window = range(sequence, min(sequence + RESULTS_MAX, count + 1))
        asked = {fast.send(Publish(), "t", raws[i]): i for i in window}
        if restarts < 4 and rng.random() < 0.5:
            restarts += 1
            for _ in range(rng.randrange(min(20, len(window)))):
                answer = fast.receive()
                if not code_of(answer):
                    acknowledged[asked[answer.correlation]] = replied(answer)
            broker.kill() if number == signal.SIGKILL else broker.terminate()
            fast.close()
            broker.restart()
            fast = peers.fast(broker)
            sequence = max(acknowledged, default=0) + 1
            continue
        for correlation, i in asked.items():
            acknowledged[i] = replied(fast.answer_to(correlation))
        sequence = window[-1] + 1
    records = fast.read_all("t")
    assert [record.value for record in records] == [
        b"%d %d" % (i, j) for i in range(1, count + 1) for j in range(3)
    ]
    places = {record.pointer: record.value for record in records}
    assert all(places[reply.first] == b"%d 0" % i for i, reply in acknowledged.items())


def test_a_hibernating_topic_remembers_its_producers(start_broker: StartBroker, peers: Peers) -> None:
    fast = peers.fast(start_broker(worker_timeout=0.05))
    for i in range(1, 6):
        reply = fast.publish("t", [b"%d" % i], producer=ALICE, sequence=i)
        eventually(lambda: hibernates(fast), "it hibernates")
        again = fast.publish("t", [b"%d" % i], producer=ALICE, sequence=i)
        assert (again.first, again.duplicate) == (reply.first, True)
