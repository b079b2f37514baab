"""A producer while its broker is killed: acknowledged records are there once and in order."""

from __future__ import annotations

import random
from itertools import count

import pytest

from kit.broker.brokers import BrokerProcess
from kit.client.records import send_all, values
from kit.deadlines import DEADLINE_S, eventually
from kit.scale import times
from quoth import Client, Failure, ProducerError


@pytest.mark.parametrize("durability", ["written", "synced"])
def test_kills_at_any_moment_leave_an_exact_account(
    own_broker: BrokerProcess, own_client: Client, rng: random.Random, durability: str
) -> None:
    """A producer with a short timeout reports the batches that it gives up; no other is missing."""
    own_client.create_topic("t")
    failures: list[Failure] = []
    number = count()
    producer = own_client.producer("t", batch=5, linger=0.001, timeout=0.4, durability=durability)  # type: ignore[arg-type]
    for _ in range(times(3, 40)):
        send_all(producer, [b"%d" % next(number) for _ in range(rng.randint(50, 400))])
        eventually(lambda: producer._buffered < rng.randint(1, 400), "some of it is on its way")
        own_broker.kill()
        send_all(producer, [b"%d" % next(number) for _ in range(rng.randint(1, 300))])
        own_broker.restart()
        try:
            producer.flush(DEADLINE_S)
        except ProducerError as problem:
            failures += problem.failures
    producer.close()
    found = list(map(int, values(own_client, "t")))
    unknown = {int(value) for one in failures if one.outcome == "unknown" for value in one.values}
    never = {int(value) for one in failures if one.outcome == "refused" for value in one.values}
    everything = set(range(next(number)))
    assert found == sorted(set(found)), "once and in order"
    assert everything - unknown - never <= set(found), "acknowledged is stored"
    assert not never & set(found), "refused is not"
    assert producer.acknowledged == len(everything - unknown - never)
