"""Connections that are too many, too greedy or too silent: they are ended, and others notice nothing."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress

import pytest
import zmq

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, is_answered, replied
from kit.deadlines import eventually
from kit.machine.processes import descriptors, needs_proc
from quothd.connections.connection import QUEUED_MAX
from quothwire.errors import Unavailable
from quothwire.protocol.messages import Ping

pytestmark = needs_proc


def ended(peer: FastPeer) -> int:
    return int(peer.status(limit=0).counters.get("connections_ended", 0))


# -- waits --------------------------------------------------------------------------------------------------


def test_one_connection_parks_no_more_fetches_than_it_may_and_leaves_none_behind(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(connection_waits_max=100)
    good, greedy = peers.fast(broker), peers.fast(broker)
    newest = good.publish("t", [b"x"]).last
    waiting = good.send_fetch("t", newest, wait_ms=600_000)
    asked = [greedy.send_fetch("t", newest, wait_ms=600_000) for _ in range(150)]
    refused = [greedy.receive() for _ in range(50)]
    assert {answer.reply.code for answer in refused if isinstance(answer.reply, Unavailable)} == {"busy"}
    assert {answer.correlation for answer in refused} == {*asked[100:]}
    other = peers.fast(broker)
    eventually(lambda: other.status(limit=0).waits == 101, "the others wait")
    greedy.close()
    eventually(lambda: other.status(limit=0).waits == 1, "those of the connection are dropped")
    other.publish("t", [b"y"])
    assert replied(good.answer_to(waiting)).next > newest


# -- connections --------------------------------------------------------------------------------------------


@pytest.fixture
def raw_peers(peers: Peers) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_connections_beyond_the_limit_are_ended_those_without_a_request_first(
    start_broker: StartBroker, peers: Peers
) -> None:
    """A client that works keeps its connection, and a new one gets in."""
    broker = start_broker(connections_max=20)
    good = peers.fast(broker)
    good.publish("t", [b"x"])
    before = descriptors(broker.pid)
    idle = [peers.fast(broker) for _ in range(60)]
    eventually(lambda: ended(good) >= 41, "idle connections are ended")
    eventually(lambda: descriptors(broker.pid) <= before + 25, "libzmq has closed them")
    late = peers.fast(broker)
    eventually(lambda: is_answered(late), "a new one gets in")
    late.publish("t", [b"y"])
    assert good.values("t") == [b"x", b"y"]
    for one in idle:
        one.close()


def test_a_connection_that_reads_nothing_is_ended_and_its_client_goes_on_with_a_new_one(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(memory_max="256MiB")
    good, silent = peers.fast(broker), peers.fast(broker, unread_max=1)
    for _ in range(8):
        good.publish("t", [bytes(2**20)])
    began = time.monotonic()
    for _ in range(QUEUED_MAX):
        silent.send_fetch("t", 0, bytes_max=2**22)
    eventually(lambda: ended(good) == 1, "it is ended", 20.0)
    assert time.monotonic() - began > 9.0
    eventually(lambda: good.status(limit=0).counters["reply_bytes"] == 0, "its replies are given up")
    broker.wait_for("event=connection_ended reason=silent")
    eventually(lambda: is_answered(silent), "its client goes on")


# -- memory -------------------------------------------------------------------------------------------------


def test_replies_that_nothing_reads_take_no_more_than_their_part_of_the_memory(
    start_broker: StartBroker, peers: Peers
) -> None:
    """A client that reads gets its records meanwhile, though in smaller pieces."""
    broker = start_broker(memory_max="256MiB")
    good = peers.fast(broker)
    for _ in range(16):
        good.publish("t", [bytes(2**20)])
    silent = [peers.fast(broker, unread_max=1) for _ in range(20)]
    for _ in range(30):
        for one in silent:
            one.send_fetch("t", 0, bytes_max=2**22)
    for _ in range(20):
        held = good.status(limit=0).counters["reply_bytes"]
        assert held <= (64 + 21) * 2**20, "a quarter, and a batch for each"
        assert len(good.fetch("t", 0, bytes_max=2**22).values) >= 1


def test_a_client_that_has_read_its_replies_is_not_refused_beside_a_burst_of_fetches(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Replies that it has read are not counted, though there was much room when its request came."""
    broker = start_broker(memory_max="256MiB")
    good = peers.fast(broker)
    for _ in range(4):
        good.publish("t", [bytes(2**20)])
    silent = [peers.fast(broker, unread_max=1) for _ in range(20)]
    for _ in range(10):
        assert len(good.fetch("t", 0, bytes_max=2**20).values) == 1
        for one in 4 * silent:
            one.send_fetch("t", 0, bytes_max=2**22)


def test_identities_like_the_routes_of_libzmq_are_refused(start_broker: StartBroker, peers: Peers) -> None:
    """One that is the next route would make libzmq abort the broker, so their beginning is random."""
    broker = start_broker()
    good = peers.fast(broker)
    good.call(Ping())
    unseeded = 0x6B8B4567  # of `rand`
    numbers = [*range(unseeded, unseeded + 20), 0, 1, 2**32 - 1]
    others: list[zmq.Socket[bytes]] = []
    with ExitStack() as stack:
        for number in numbers:
            other = stack.enter_context(peers.context.socket(zmq.DEALER))
            other.set(zmq.LINGER, 0)
            other.set(zmq.RECONNECT_IVL, -1)
            other.set(zmq.IDENTITY, b"\0" + struct.pack(">I", number))
            other.connect(broker.url)
            others.append(other)
        eventually(lambda: ping_all(others) and ended(good) == len(numbers), "the connections are ended")
        assert not any(other.poll(0) for other in others)
    peers.fast(broker).call(Ping())
    broker.wait_for("event=connection_ended reason=identity")


def ping_all(clients: Iterable[zmq.Socket[bytes]]) -> bool:
    """Send one more request each, if possible. Those of the first seconds could be late ones of others."""
    for client in clients:
        with suppress(zmq.Again):
            client.send_multipart([b"", b"ping"], zmq.NOBLOCK)
    return True
