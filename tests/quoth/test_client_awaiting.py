"""A broker that is not there yet: a client waits as long as it is asked to, a tail without a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kit.brokers import BrokerProcess, StartBroker, free_port
from kit.deadlines import DEADLINE_S, hold
from kit.proxies import Wire
from quoth import Client, Disconnected, RequestError

Connect = Callable[..., Client]
AWAY_S = 0.7
"""Far beyond the time that a call may take."""
BRIEF_S = 0.2


@pytest.fixture
def away(start_broker: StartBroker) -> BrokerProcess:
    """A broker that has ended."""
    broker = start_broker()
    broker.kill()
    return broker


def test_connecting_waits_as_long_as_it_is_told_to(
    away: BrokerProcess, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    connecting = pool.submit(connect, away, timeout=BRIEF_S, wait=DEADLINE_S)
    hold(lambda: not connecting.done(), "it waits", AWAY_S)
    away.restart()
    client = connecting.result(DEADLINE_S)
    assert client.timeout == BRIEF_S
    assert client.topics() == []


def test_who_has_waited_in_vain_is_told_what_was_tried_and_for_how_long(connect: Connect) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(Disconnected) as told:
        connect(url, timeout=30.0, wait=0.3)
    assert 0.3 <= time.monotonic() - began < 10
    problem = told.value
    assert (problem.code, problem.text, problem.hint) == (
        "disconnected",
        f"no broker answered a hello at {url} for 0.3 s: no connection was made",
        "start a broker there, or wait longer",
    )


def test_who_takes_connections_and_says_nothing_is_told_apart(wire: Wire, connect: Connect) -> None:
    client = connect(wire.url)
    wire.turn_deaf()
    with pytest.raises(Disconnected, match=r"for 0\.3 s: no connection was made"):
        connect(wire.url, wait=0.3)
    assert client.url == wire.url


@pytest.mark.parametrize("wait", ["long", float("nan"), True])
def test_a_wait_is_a_number_of_seconds(broker: BrokerProcess, connect: Connect, wait: Any) -> None:
    with pytest.raises(RequestError, match=f"wait is a number of seconds, not {wait!r}"):
        connect(broker, wait=wait)


def test_tails_that_begin_while_the_broker_is_away_wait_for_it(
    start_broker: StartBroker, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    broker = start_broker()
    client = connect(broker, timeout=BRIEF_S)
    broker.kill()

    def tail() -> bytes:
        return next(client.tail("orders")).value

    def tail_many(*, ordered: bool) -> bytes:
        with client.tail_many("orders", ordered=ordered) as reading:
            return next(reading).value

    values = [pool.submit(tail), *(pool.submit(tail_many, ordered=ordered) for ordered in (False, True))]
    hold(lambda: not any(value.done() for value in values), "they wait", AWAY_S)
    broker.restart()
    publisher = connect(broker)
    while not all(value.done() for value in values):
        publisher.publish("orders", b"value")
    assert [value.result() for value in values] == [b"value"] * 3
