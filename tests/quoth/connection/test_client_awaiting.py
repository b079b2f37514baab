"""A broker that is not there yet: a client waits as long as it is asked to, a tail without a limit."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker, free_port
from kit.broker.proxies import Meddler
from kit.client.records import Connect
from kit.deadlines import DEADLINE_S, hold
from quoth import Client, Disconnected, RequestError

AWAY_S = 0.7
"""Far beyond the time that a call may take."""
BRIEF_S = 0.2


@pytest.fixture
def away(start_broker: StartBroker) -> BrokerProcess:
    """A broker that has ended."""
    broker = start_broker()
    broker.kill()
    return broker


def test_connecting_waits_for_the_given_time(
    away: BrokerProcess, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    connecting = pool.submit(connect, away, timeout=BRIEF_S, wait=DEADLINE_S)
    hold(lambda: not connecting.done(), "it waits", AWAY_S)
    away.restart()
    client = connecting.result(DEADLINE_S)
    assert client.timeout == BRIEF_S
    client.timeout = DEADLINE_S
    assert client.topics() == []


def test_a_client_that_waited_in_vain_reports_what_it_found_and_for_how_long(connect: Connect) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(Disconnected) as found:
        connect(url, timeout=30.0, wait=1.2)
    assert 1.2 <= time.monotonic() - began < 10
    reason, _, tried = found.value.text.partition(", tried for ")
    assert reason.startswith(f"hello: no broker answers at {url}: ")
    assert re.fullmatch(r"[5-9]\d\d milliseconds|[1-9](\.\d)? seconds?", tried), tried


def test_a_wait_for_a_broker_that_does_not_answer_its_hello_reports_the_span(
    meddler: Meddler, connect: Connect
) -> None:
    meddler.on_request = lambda _: True
    with pytest.raises(Disconnected) as found:
        connect(meddler.url, wait=2.0)
    assert found.value.code == "timed_out"
    assert found.value.text.endswith(": it takes connections, and has answered nothing for 2 seconds")
    assert found.value.hint == "whether it took effect is not known"


@pytest.mark.parametrize("wait", ["long", float("nan"), True])
def test_a_wait_is_a_number_of_seconds(broker: BrokerProcess, connect: Connect, wait: Any) -> None:
    with pytest.raises(RequestError, match=f"wait is a number of seconds, not {wait!r}"):
        connect(broker, wait=wait)


def test_tails_that_begin_while_the_broker_is_away_wait_for_it(
    own_broker: BrokerProcess, own_client: Client, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    own_client.timeout = BRIEF_S
    own_broker.kill()

    def tail() -> bytes:
        return next(own_client.tail("orders")).value

    def tail_many(*, ordered: bool) -> bytes:
        with own_client.tail_many("orders", ordered=ordered) as reading:
            return next(reading).value

    values = [pool.submit(tail), *(pool.submit(tail_many, ordered=ordered) for ordered in (False, True))]
    hold(lambda: not any(value.done() for value in values), "they wait", AWAY_S)
    own_broker.restart()
    publisher = connect(own_broker)
    while not all(value.done() for value in values):
        publisher.publish("orders", b"value")
    assert [value.result() for value in values] == [b"value"] * 3
