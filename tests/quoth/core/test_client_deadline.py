"""Seconds as an application says them: any number will do, and what is none is refused by its name."""

from __future__ import annotations

import math
from typing import Any

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.client.records import Connect
from quoth import Client
from quoth.core.options import SECONDS_MAX, as_seconds

NO_NUMBERS: list[Any] = [math.nan, "5", b"5", True, [1.0]]


def test_any_number_is_a_timeout() -> None:
    """Also one that is more than a float holds."""
    given = [0, 2, 0.5, -1, -math.inf, math.inf, 10**400]
    assert list(map(as_seconds, given)) == [0.0, 2.0, 0.5, 0.0, 0.0, SECONDS_MAX, SECONDS_MAX]


def test_every_call_refuses_a_timeout_that_is_no_number(
    connect: Connect, broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.publish(topic, b"a")
    with client.producer(topic) as producer:
        for given in NO_NUMBERS:
            for call in (
                lambda given: connect(broker, timeout=given),
                lambda given: client.publish(topic, b"b", timeout=given),
                lambda given: client.read(topic, timeout=given),
                lambda given: client.producer(topic, timeout=given),
                lambda given: client.producer(topic, linger=given),
                lambda given: client.transaction(topic, "a", 0).publish([], timeout=given),
                producer.flush,
                producer.close,
            ):
                with refused("bad_request"):
                    call(given)
        producer.send(b"it goes on")
    assert [message.value for message in client.read(topic)] == [b"a", b"it goes on"]


def test_infinity_is_a_timeout(connect: Connect, broker: BrokerProcess, topic: str) -> None:
    client = connect(broker, timeout=math.inf)
    client.publish(topic, b"a", timeout=math.inf)
    assert [message.value for message in client.read(topic, timeout=math.inf)] == [b"a"]
    with client.producer(topic, batch=1, max_buffer=1, linger=math.inf, timeout=math.inf) as producer:
        for number in range(100):
            producer.send(b"%d" % number)
        producer.flush(math.inf)
        producer.close(math.inf)
    assert len(client.read(topic)) == 101
