"""Seconds as an application says them: any number will do, and what is none is refused by its name."""

from __future__ import annotations

import math
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.client.records import Connect
from quoth import Client
from quoth.core.deadline import SECONDS_MAX, as_seconds

NO_NUMBERS: list[Any] = [math.nan, "5", b"5", True, [1.0]]

every_wrong_one = pytest.mark.parametrize("given", NO_NUMBERS, ids=repr)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (0, 0.0),
        (2, 2.0),
        (0.5, 0.5),
        (-1, 0.0),
        (-math.inf, 0.0),
        (math.inf, SECONDS_MAX),
        pytest.param(10**400, SECONDS_MAX, id="more than a float holds"),
    ],
)
def test_any_number_will_do(given: float, seconds: float) -> None:
    assert as_seconds(given) == seconds


@every_wrong_one
def test_call_refuses_what_is_no_number(
    broker: BrokerProcess, client: Client, topic: str, given: Any
) -> None:
    client.publish(topic, b"a")
    for call in (
        lambda: quoth.connect(broker.url, timeout=given),
        lambda: client.publish(topic, b"b", timeout=given),
        lambda: client.read(topic, timeout=given),
        lambda: client.producer(topic, timeout=given),
        lambda: client.producer(topic, linger=given),
    ):
        with refused("bad_request"):
            call()
    with client.producer(topic) as producer:
        for ending in (producer.flush, producer.close):
            with refused("bad_request"):
                ending(given)
        producer.send(b"it goes on")
    assert [message.value for message in client.read(topic)] == [b"a", b"it goes on"]


def test_none_is_no_timeout_where_there_has_to_be_one(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    for call in (
        lambda: quoth.connect(broker.url, timeout=None),  # type: ignore[arg-type]
        lambda: client.producer(topic, timeout=None),  # type: ignore[arg-type]
    ):
        with refused("bad_request"):
            call()


@pytest.mark.parametrize(
    "options", [{"batch": 1.5}, {"batch": "9"}, {"max_buffer": None}, {"max_buffer": 1e9}], ids=repr
)
def test_producer_refuses_numbers_of_records_that_are_none(
    client: Client, topic: str, options: dict[str, Any]
) -> None:
    with refused("bad_request"):
        client.producer(topic, **options)


def test_for_ever_is_a_timeout(connect: Connect, broker: BrokerProcess, topic: str) -> None:
    client = connect(broker, timeout=math.inf)
    client.publish(topic, b"a", timeout=math.inf)
    assert [message.value for message in client.read(topic, timeout=math.inf)] == [b"a"]
    with client.producer(topic, batch=1, max_buffer=1, linger=math.inf, timeout=math.inf) as producer:
        for number in range(100):
            producer.send(b"%d" % number)
        producer.flush(math.inf)
        producer.close(math.inf)
    assert len(client.read(topic)) == 101
