"""A producer that sends a batch again stores it once, also after a restart or a crash."""

from __future__ import annotations

import random
from collections.abc import Callable

from kit.broker.brokers import BrokerProcess, Restart, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, hibernates, refused, replied
from kit.deadlines import eventually
from kit.disk.logs import encoded
from kit.scale import times
from quothlog.producers import RESULTS_MAX
from quothwire.protocol.messages import Publish, Published

ALICE = 2**64 - 1


def test_a_repeated_publish_gets_its_first_pointers(
    broker: BrokerProcess, fast: FastPeer, topic: str, restart: Restart
) -> None:
    """The reply is marked as a duplicate, and nothing is stored again."""
    ways = {f"{topic}-dense": (1, False), f"{topic}-sparse": (10, True)}
    sent: dict[tuple[str, bytes], Published] = {}
    for name, (step, sparse) in ways.items():
        for i in range(5):
            raw = encoded([b"%d" % i, b"x"], ALICE, 1 + i * step, sparse=sparse, start=sparse and i == 0)
            sent[name, raw] = fast.call(Publish(), name, raw)
            assert not sent[name, raw].duplicate
    restart(broker)
    for (name, raw), first in sent.items():
        again = fast.call(Publish(), name, raw)
        assert (again.first, again.last, again.count, again.duplicate) == (first.first, first.last, 2, True)
    for name, (step, sparse) in ways.items():
        new = fast.publish(name, [b"new"], producer=ALICE, sequence=1 + 5 * step, sparse=sparse)
        assert not new.duplicate
        assert len(fast.read_all(name)) == 11


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
    assert fast.values(topic) == [b"%d" % i for i in range(1, 31)]


def test_a_sequence_with_other_bytes_is_refused(fast: FastPeer, topic: str) -> None:
    """As are unknown producers and those without a sequence, each with its code."""
    fast.publish(topic, [b"one"], producer=ALICE, sequence=1)
    for code, producer, sequence in (
        ("sequence_reused", ALICE, 1),
        ("unknown_producer", 7, 2),
        ("bad_batch", 0, 1),
        ("bad_batch", 1, 0),
    ):
        with refused(code):
            fast.publish(topic, [b"two"], producer=producer, sequence=sequence)
    assert fast.values(topic) == [b"one"]


def test_a_pipeline_through_crashes_or_restarts_is_stored_once(
    start_broker: StartBroker, peers: Peers, rng: random.Random
) -> None:
    """Acknowledged batches are there, the others are sent again."""
    broker = start_broker()
    fast = peers.fast(broker)
    count = times(600, 20_000)
    raws = {i: encoded([b"%d %d" % (i, j) for j in range(3)], ALICE, i) for i in range(1, count + 1)}
    acknowledged: dict[int, Published] = {}
    sequence = 1
    ends: list[Callable[[], object]] = [broker.kill, broker.terminate] * 2
    while sequence <= count:
        window = range(sequence, min(sequence + RESULTS_MAX, count + 1))
        asked = {fast.send(Publish(), "t", raws[i]): i for i in window}
        if ends and rng.random() < 0.5:
            for _ in range(rng.randrange(min(20, len(window)))):
                answer = fast.receive()
                if not code_of(answer):
                    acknowledged[asked[answer.correlation]] = replied(answer)
            ends.pop()()
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
    for i in (1, 2):
        reply = fast.publish("t", [b"%d" % i], producer=ALICE, sequence=i)
        eventually(lambda: hibernates(fast), "it hibernates")
        again = fast.publish("t", [b"%d" % i], producer=ALICE, sequence=i)
        assert (again.first, again.duplicate) == (reply.first, True)
