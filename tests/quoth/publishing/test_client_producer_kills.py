"""A producer while its broker is killed: acknowledged records are there once and in order."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from kit.broker.brokers import StartBroker
from kit.client.records import Connect, send_all, values
from kit.deadlines import DEADLINE_S, eventually
from kit.scale import times
from quoth import Failure, ProducerError


def test_kills_in_the_middle_of_three_streams_lose_nothing_and_repeat_nothing(
    start_broker: StartBroker, connect: Connect, rng: random.Random
) -> None:
    """100,000 records, whatever dies meanwhile: each is there once, in the order of its stream."""
    broker = start_broker()
    client = connect(broker)
    counts = (50_000, 30_000, 20_000)
    producers = [client.producer("t", batch=100) for _ in counts]

    def work(me: int) -> None:
        for number in range(counts[me]):
            producers[me].send(b"%d %d" % (me, number))
        producers[me].close()

    def acknowledged() -> int:
        return sum(producer.acknowledged for producer in producers)

    with ThreadPoolExecutor() as pool:
        streams = [pool.submit(work, me) for me in range(len(counts))]
        for moment in sorted(rng.sample(range(sum(counts) - 10_000), times(5, 60))):
            eventually(lambda moment=moment: acknowledged() >= moment, "it goes on")  # type: ignore[misc]
            broker.kill()
            broker.restart()
        for stream in streams:
            stream.result()
    assert [producer.acknowledged for producer in producers] == list(counts)
    found = values(client, "t")
    for me, expected in enumerate(counts):
        mine = [value for value in found if value.startswith(b"%d " % me)]
        assert mine == [b"%d %d" % (me, number) for number in range(expected)]
    assert len(found) == sum(counts)


@pytest.mark.parametrize("durability", ["written", "synced"])
def test_kills_at_any_moment_leave_an_exact_account(
    start_broker: StartBroker, connect: Connect, rng: random.Random, durability: str
) -> None:
    """A producer with a short timeout reports the batches that it gives up; no other is missing."""
    broker = start_broker()
    client = connect(broker)
    client.create_topic("t")
    failures: list[Failure] = []
    number = count()
    producer = client.producer("t", batch=5, linger=0.001, timeout=0.4, durability=durability)  # type: ignore[arg-type]
    for _ in range(times(3, 40)):
        send_all(producer, [b"%d" % next(number) for _ in range(rng.randint(50, 400))])
        eventually(lambda: producer._buffered < rng.randint(1, 400), "some of it is on its way")
        broker.kill()
        send_all(producer, [b"%d" % next(number) for _ in range(rng.randint(1, 300))])
        broker.restart()
        try:
            producer.flush(DEADLINE_S)
        except ProducerError as problem:
            failures += problem.failures
    producer.close()
    found = list(map(int, values(client, "t")))
    unknown = {int(value) for one in failures if one.outcome == "unknown" for value in one.values}
    never = {int(value) for one in failures if one.outcome == "refused" for value in one.values}
    everything = set(range(next(number)))
    assert found == sorted(set(found)), "once and in order"
    assert everything - unknown - never <= set(found), "acknowledged is stored"
    assert not never & set(found), "refused is not"
    assert producer.acknowledged == len(everything - unknown - never)
