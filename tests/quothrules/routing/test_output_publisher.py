"""The outputs of rules are stored once, whatever happens to requests, replies, producers and publishers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import quoth
from kit.broker.proxies import Meddler
from kit.clocks import DAY, ManualClock
from kit.deadlines import DEADLINE_S
from quoth import Client
from quothd import Broker
from quothrules.evaluation.outcome import RoutedRecord
from quothrules.routing.output_batch import OutputBatch, SourceRecord, batches_of
from quothrules.routing.output_publisher import OutputPublisher
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Operation, Published

IN_FLIGHT = 64


def batch(
    topic: str, pointer: int, value: bytes = b"", *, is_fresh: bool = True, moves: int = 0
) -> OutputBatch:
    source = SourceRecord("rules.test", 7, moves, pointer, is_fresh)
    (made,) = batches_of(source, [RoutedRecord(topic, value or b"%d" % pointer, None, {})])
    return made


def rows(topic: str, pointers: Sequence[int], *, is_fresh: bool = True) -> list[OutputBatch]:
    return [batch(topic, pointer, is_fresh=is_fresh) for pointer in pointers]


def values(client: Client, topic: str) -> list[int]:
    return [int(message.value) for message in client.read(topic, limit=10_000)]


def published(
    client: Client, batches: Sequence[OutputBatch], publisher: OutputPublisher | None = None
) -> int:
    """Publish with a publisher of its own; returns how many were stored before."""
    with publisher or OutputPublisher(client, IN_FLIGHT, 0) as publisher:
        publisher.publish(batches)
        assert [one.problem for one in batches] == [None] * len(batches)
        assert all(one.is_done for one in batches)
        return publisher.stored_before


def test_batches_are_stored_in_order_and_once(client: Client, topic: str) -> None:
    """Another publisher, of the process after this one, repeats nothing."""
    assert published(client, rows(topic, range(1, 65))) == 0
    assert published(client, rows(topic, range(1, 65), is_fresh=False)) == 64
    assert published(client, rows(topic, range(60, 101), is_fresh=False)) == 5
    assert values(client, topic) == [*range(1, 101)]


def test_the_outputs_of_a_record_are_a_batch_for_each_topic(client: Client, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    outputs = [RoutedRecord(name, name.encode(), b"k", {"h": b"x"}) for name in names * 2]
    made = batches_of(SourceRecord("g", 1, 1, 5, True), outputs)
    assert [one.target for one in made] == names
    published(client, made)
    for name in names:
        found = client.read(name)
        assert [(m.value, m.key, dict(m.headers)) for m in found] == [(name.encode(), b"k", {"h": b"x"})] * 2
        assert found[1].pointer == found[0].pointer + 1


def test_a_group_that_was_moved_or_another_log_is_something_new(client: Client, topic: str) -> None:
    for moves in (0, 1, 1):
        published(client, [batch(topic, 5, moves=moves)])
    assert values(client, topic) == [5, 5]


def test_other_bytes_of_a_record_that_is_stored_are_left_out(client: Client, topic: str) -> None:
    """As after a change of the rules between two attempts."""
    published(client, rows(topic, [5, 6]))
    assert published(client, [batch(topic, 5, b"99")]) == 1
    assert values(client, topic) == [5, 6]


def test_a_batch_that_is_too_large_fails_alone(client: Client, topic: str) -> None:
    made = rows(topic, [1, 2, 3])
    made[1] = batch(topic, 2, bytes(20_000_000))
    with OutputPublisher(client, IN_FLIGHT, 0) as publisher:
        publisher.publish(made)
    assert [one.is_done for one in made] == [True] * 3
    assert [one.problem and one.problem.code for one in made] == [None, "too_large", None]
    assert values(client, topic) == [1, 3]


def test_a_batch_that_was_overtaken_is_stored_under_another_producer_id(client: Client, topic: str) -> None:
    """Once, also if it is published again, and if several were."""
    published(client, rows(topic, [1, 4, 6]))
    for _ in range(2):
        published(client, rows(topic, [3, 5], is_fresh=False))
    published(client, rows(topic, [2], is_fresh=False))
    assert values(client, topic) == [1, 4, 6, 3, 5, 2]


def test_a_batch_that_the_broker_has_forgotten_is_looked_for(client: Client, topic: str) -> None:
    """Behind 64 later ones the broker does not know whether it is stored. The topic does."""
    first = client.publish(topic, b"0").first
    here = [first + 2 * number for number in range(200)]
    published(client, rows(topic, here))
    assert published(client, rows(topic, [here[0]], is_fresh=False)) == 1
    published(client, rows(topic, [here[0] + 1], is_fresh=False))
    assert published(client, rows(topic, [here[0] + 1], is_fresh=False)) == 1
    assert values(client, topic) == [0, *here, here[0] + 1]


def test_a_batch_whose_producer_the_broker_has_forgotten_is_looked_for(tmp_path: Path) -> None:
    """A producer that was silent for a week is forgotten, and so is what it has stored."""
    clock = ManualClock(tick=1)
    for _ in range(2):
        with Broker(tmp_path, clock=clock) as broker, quoth.connect(broker) as client:
            if not client.topics():
                client.create_topic("copy", count_limit=2)
                published(client, rows("copy", [1, 2]))
                clock.step(8 * DAY)
                client.publish("copy", [b"0", b"0"])
                client.publish("copy", b"0")
            else:
                assert published(client, rows("copy", [1, 2, 3, 4], is_fresh=False)) == 2
                assert values(client, "copy") == [1, 2, 0, 0, 0, 3, 4]


def test_a_topic_that_is_made_again_takes_the_next_batch(client: Client, topic: str) -> None:
    with OutputPublisher(client, IN_FLIGHT, 0) as publisher:
        publisher.publish(rows(topic, [1, 2]))
        client.delete_topic(topic)
        publisher.publish(rows(topic, [3, 4, 5]))
    assert values(client, topic) == [3, 4, 5]


def test_an_outage_leaves_what_is_not_done(
    meddler: Meddler, impeded: Client, client: Client, topic: str
) -> None:
    """Publishing again goes on, by the same publisher or another one."""
    made = rows(topic, range(1, 11))
    lost: list[Answer] = []

    def lose(call: Call, answer: Answer) -> bool:
        if call.operation == Operation.PUBLISH:
            lost.append(answer)
        return call.operation == Operation.PUBLISH

    meddler.on_reply = lose
    with OutputPublisher(impeded, IN_FLIGHT, 0) as publisher:
        while not lost:  # the time may be over before a request has left
            with pytest.raises(QuothError, match="timed_out"):
                publisher.publish(made)
        assert not any(one.is_done for one in made)
        meddler.on_reply = lambda *_: False
        impeded.timeout = DEADLINE_S
        publisher.publish(made)
        assert publisher.stored_before == 1, "the first of a producer goes alone"
    assert values(client, topic) == [*range(1, 11)]


def test_a_broker_that_stores_nothing_is_an_outage(meddler: Meddler, impeded: Client, topic: str) -> None:
    def refuse(call: Call) -> QuothError | bool:
        return error("disk_low", "no room") if call.operation == Operation.PUBLISH else False

    meddler.on_request = refuse
    impeded.timeout = DEADLINE_S
    with OutputPublisher(impeded, IN_FLIGHT, 0) as publisher, pytest.raises(QuothError, match="disk_low"):
        publisher.publish(rows(topic, [1]))


@pytest.mark.parametrize("in_flight", [1, 8, 64])
def test_nothing_is_lost_or_doubled_by_random_failures(
    meddler: Meddler, impeded: Client, client: Client, topic: str, rng: random.Random, in_flight: int
) -> None:
    """Requests and replies are lost, requests are refused, publishers end; in rows, as a worker publishes."""

    def on_request(call: Call) -> QuothError | bool:
        chance = rng.random() if call.operation == Operation.PUBLISH else 1.0
        return error("busy", "a test") if chance < 0.05 else chance < 0.1

    def on_reply(call: Call, answer: Answer) -> bool:
        return isinstance(answer.reply, Published) and rng.random() < 0.05

    meddler.on_request, meddler.on_reply = on_request, on_reply
    publisher = OutputPublisher(impeded, in_flight, 0)
    names = [f"{topic}-{number}" for number in range(3)]
    pointer = client.publish(topic, b"0").first
    expected: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(4):
        made = []
        for _ in range(64):
            pointer += rng.randint(1, 5)
            for name in rng.sample(names, rng.randint(0, 3)):
                expected[name].append(pointer)
                made.append((name, pointer))
        is_fresh = True
        while True:
            batches = [batch(name, at, is_fresh=is_fresh) for name, at in made]
            with suppress(QuothError):
                publisher.publish(batches)
            if all(one.is_done for one in batches) and rng.random() < 0.8:
                break
            is_fresh = False
            if rng.random() < 0.5:  # another process
                publisher.close()
                publisher = OutputPublisher(impeded, in_flight, 0)
    publisher.close()
    for name in names:
        assert sorted(values(client, name)) == expected[name]
        if in_flight == 1:
            assert values(client, name) == expected[name], "with one at a time the order is strict"
