"""Connecting and disconnecting: present and absent brokers, timeouts, and released resources."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context, refused
from kit.broker.proxies import Meddler, Wire
from kit.client.records import Connect, values
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.ports import free_port
from quoth import Client, Disconnected, RequestError
from quothd import Broker
from quothwire.errors import BrokerFailure, QuothError
from quothwire.protocol.binary_codec import Call

# -- who is there -------------------------------------------------------------------------------------------


def test_a_peer_that_never_answers_causes_a_timeout(twin: Connect, context: Context) -> None:
    with context.socket(zmq.ROUTER) as mute:
        mute.bind(url := f"tcp://127.0.0.1:{free_port()}")

        def code() -> str:
            with pytest.raises(Disconnected) as caught:
                twin(url, timeout=0.5)
            return caught.value.code

        eventually(lambda: code() == "timed_out", "the peer has taken the connection in time")


@pytest.mark.parametrize(
    "url",
    ["", "localhost:5555", "http://127.0.0.1:1", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:http",
     "nonsense://x"],
)  # fmt: skip
def test_bad_url_is_refused_at_once_with_an_example(twin: Connect, url: str) -> None:
    with pytest.raises(RequestError) as caught:
        twin(url, timeout=0.3)
    assert caught.value.code == "bad_request"
    assert repr(url) in caught.value.text
    assert "tcp://127.0.0.1:5555" in caught.value.hint


# -- a broker of this process -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["inproc", "tcp", "ipc"])
def test_client_connects_to_a_broker_object_of_its_process(twin: Connect, kind: str, tmp_path: Path) -> None:
    settings: dict[str, dict[str, Any]] = {
        "inproc": {},
        "tcp": {"host": "127.0.0.1"},
        "ipc": {"listen": (f"ipc://{tmp_path}/socket",)},
    }
    with Broker(tmp_path / "data", **settings[kind]) as broker, twin(broker) as client:
        assert client.url.startswith(f"{kind}://")
        ack = client.publish("t", [b"one", b"two"])
        assert values(client, "t") == [b"one", b"two"]
        with client.producer("t") as producer:
            producer.send(b"three")
        assert producer.acknowledged == 1
        assert next(client.tail("t", after=ack.last)).value == b"three"


def test_address_inside_a_process_is_refused_with_the_way_to_it(twin: Connect, tmp_path: Path) -> None:
    """Each context has its own addresses, so no broker would answer there."""
    with Broker(tmp_path) as broker, pytest.raises(RequestError, match="connect to the Broker"):
        twin(broker.url)


@pytest.mark.parametrize("settings", [{}, {"host": "127.0.0.1"}], ids=["inproc", "tcp"])
def test_broker_of_this_process_that_stops_closes_its_clients(
    twin: Connect, settings: dict[str, Any], tmp_path: Path
) -> None:
    """Pending calls end, later ones are refused, nothing hangs."""
    broker = Broker(tmp_path / "data", **settings).start()
    with twin(broker, timeout=DEADLINE_S) as client, ThreadPoolExecutor() as pool:
        client.publish("t", b"one")
        producer = client.producer("t")
        tail = pool.submit(next, client.tail("t"))
        waiting = pool.submit(client.read, "t", since="now", timeout=60.0)
        eventually(lambda: client.status().waits == 2, "both wait at the broker")
        broker.stop()
        for ended in (tail, waiting):
            assert isinstance(ended.exception(DEADLINE_S), Disconnected)
        with refused("closed"):
            client.publish("t", b"two")
        with refused("closed"):
            client.producer("t")
        with refused("closed"):
            producer.flush(DEADLINE_S)
        producer.close()
    with Broker(tmp_path / "data") as broker, quoth.connect(broker) as client:
        assert values(client, "t") == [b"one"]


# -- finding a broker again ---------------------------------------------------------------------------------


def test_call_to_a_stopped_broker_ends_at_its_timeout(start_broker: StartBroker, stack: ExitStack) -> None:
    broker = start_broker()
    client = stack.enter_context(quoth.connect(broker.url))
    client.publish("t", b"one")
    client.timeout = 0.3
    broker.kill()
    link = client._pool._idle[-1].link
    eventually(lambda: not (link.read_events() or link.connected), "the loss is noticed")
    began = time.monotonic()
    with refused("disconnected"):
        client.read("t")
    with refused("disconnected"):
        client.publish("t", b"two", timeout=0.2)
    assert time.monotonic() - began < DEADLINE_S
    broker.restart()
    client.timeout = DEADLINE_S
    assert values(client, "t") == [b"one"]


def test_lost_packets_cause_a_timeout_and_calls_continue_after_a_reconnect(
    wire: Wire, connect: Connect, topic: str
) -> None:
    client = connect(wire)
    client.publish(topic, b"one")
    client.timeout = 0.3
    wire.die()
    with refused("timed_out"):
        client.read(topic)
    wire.cut()
    client.timeout = DEADLINE_S
    assert values(client, topic) == [b"one"]


def test_connections_do_not_accumulate(pooled: Client, topic: str) -> None:
    """One thread needs one connection."""
    pooled.publish(topic, b"x")
    pool = pooled._pool
    for _ in range(50):
        pooled.ping()
        list(pooled.batches(topic))
        next(pooled.tail(topic, after=0))
    assert len(pool._idle) == 1


# -- a broker of tomorrow: what version 1 may still get, and another version ---------------------------------


class NewerBroker(Meddler):
    """Stands in front of a broker and lets it answer in another version."""

    version = 1

    def _take_reply(self, frames: list[bytes]) -> None:
        client, empty, header, *rest = frames
        self._front.send_multipart([client, empty, header[:2] + bytes([self.version]) + header[3:], *rest])


@pytest.fixture
def newer(context: Context, broker: BrokerProcess) -> Iterator[NewerBroker]:
    """One in front of the broker of this file."""
    with NewerBroker(context, broker.url) as newer:
        yield newer


def test_answer_in_another_version_ends_the_call_at_once(
    newer: NewerBroker, connect: Connect, topic: str
) -> None:
    """Not at the end of the timeout, after many copies."""
    client = connect(newer, timeout=3_600)
    newer.version = 2
    for ask in (client.ping, lambda: client.publish(topic, b"v"), lambda: connect(newer, timeout=3_600)):
        before = len(newer.requests)
        with refused("unsupported_version"):
            ask()
        assert len(newer.requests) == before + 1


def test_unknown_error_code_is_raised_unchanged_and_not_retried(
    meddler: Meddler, connect: Connect, topic: str
) -> None:
    def refuse(_call: Call) -> QuothError:
        return BrokerFailure("tenant_over_quota", "no more today", "ask for more")

    client = connect(meddler, timeout=3_600)
    meddler.on_request = refuse
    before = len(meddler.requests)
    with pytest.raises(BrokerFailure) as told:
        client.publish(topic, b"v")
    assert str(told.value) == "tenant_over_quota: no more today (ask for more)"
    assert (told.value.code, told.value.retryable) == ("tenant_over_quota", False)
    assert len(meddler.requests) == before + 1
