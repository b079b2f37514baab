"""Attackers do what they claim: without that, a broker would pass their tests for nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import zmq

from kit.broker.peers import Context
from kit.deadlines import DEADLINE_S, eventually
from kit.floods.engine import End, Engine, Plan
from kit.floods.floods import FLOODS, PREFIXES, WAITS


@pytest.fixture
def router(context: Context) -> Iterator[zmq.Socket[bytes]]:
    """Return a ROUTER that is bound."""
    with closing(context.socket(zmq.ROUTER)) as router:
        router.set(zmq.LINGER, 0)
        yield router


@contextmanager
def attacking(socket: zmq.Socket[bytes], plan: Plan) -> Iterator[Engine]:
    """Attack a socket in a thread until the block ends."""
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    engine = Engine("127.0.0.1", port - plan.announcements, plan)
    thread = threading.Thread(target=engine.run, args=(time.monotonic() + DEADLINE_S,), daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        engine.stop()
        thread.join()


def messages(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    while socket.poll(int(DEADLINE_S * 1_000)):
        yield socket.recv_multipart()
    raise AssertionError("nothing came")


def test_every_prefix_of_a_subscription_flood_arrives(context: Context) -> None:
    """From one client that stays: libzmq returns to the owner of an XPUB once no subscription is left."""
    with closing(context.socket(zmq.XPUB)) as announcer:
        announcer.set(zmq.LINGER, 0)
        with attacking(announcer, FLOODS["subscriptions"]()._replace(end=End.NEVER)):
            found = messages(announcer)
            prefixes = {prefix for _, (prefix,) in zip(range(PREFIXES), found, strict=False)}
        assert len(prefixes) == PREFIXES


def test_every_fetch_that_waits_arrives_although_its_client_goes(router: zmq.Socket[bytes]) -> None:
    with attacking(router, FLOODS["waits"]()):
        found: Counter[bytes] = Counter()
        for client, *_ in messages(router):
            found[client] += 1
            if found[client] == WAITS:
                break


@pytest.mark.parametrize("flood", ["pings", "malformed", "large_publishes", "topics", "groups"])
def test_a_flood_of_requests_arrives_message_by_message(router: zmq.Socket[bytes], flood: str) -> None:
    with attacking(router, FLOODS[flood]()) as engine:
        for number, _ in enumerate(messages(router)):
            if number == 100:
                break
    assert engine.sent["closed"] == 0


@pytest.mark.parametrize("flood", ["small_parts", "large_parts"])
def test_a_message_without_end_is_delivered_never(router: zmq.Socket[bytes], flood: str) -> None:
    with attacking(router, FLOODS[flood]()) as engine:
        eventually(lambda: engine.sent["bytes"] > 2**24, "it sends")
        assert not router.poll(0)
    assert engine.sent["closed"] == 0


@pytest.mark.parametrize("flood", ["idle", "noise", "churn", "unread", "slow_readers"])
def test_connections_that_end_are_opened_again(router: zmq.Socket[bytes], flood: str) -> None:
    router.set(zmq.HANDSHAKE_IVL, 200)
    plan = FLOODS[flood]()._replace(connections=20)
    with attacking(router, plan) as engine:
        expected = 20 if flood in ("unread", "slow_readers") else 60
        eventually(lambda: engine.sent["connections"] >= expected, "connections")
        if flood in ("unread", "slow_readers"):
            assert next(messages(router))
