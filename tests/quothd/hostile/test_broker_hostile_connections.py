"""Connections that are none, clients that do not read, and two with one name: nobody else notices them."""

from __future__ import annotations

import socket
import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import zmq

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, found_in, replied
from kit.deadlines import eventually
from kit.machine.processes import descriptors, needs_proc, resident_bytes
from kit.scale import times
from quothwire.protocol.messages import Ping, Pong

QUICK_S = 0.2
"""Ten times what a request takes on a busy machine, and a fraction of what somebody held up would need."""
CLOSED_WITHIN_S = 15.0
"""The broker gives a stranger three seconds for the handshake."""

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)


def raw(broker: BrokerProcess) -> socket.socket:
    """A TCP connection."""
    host, port = broker.url.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=CLOSED_WITHIN_S)


def ends(connection: socket.socket) -> bool:
    """Does the broker close the connection, whatever it says before?"""
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def works(peer: FastPeer) -> float:
    """How long a request of a good client takes."""
    began = time.monotonic()
    assert isinstance(replied(peer.answer_to(peer.send(Ping()))), Pong)
    return time.monotonic() - began


NOISE: dict[str, bytes] = {
    "nothing": b"",
    "zeros": bytes(1_000),
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(500),
    "half a greeting": GREETING[:11],
    "another mechanism": GREETING.replace(b"NULL\0", b"PLAIN"),
    "a greeting and noise": GREETING + b"\xde\xad\xbe\xef" * 100,
    "a greeting and nothing": GREETING,
    "a greeting and half a handshake": GREETING + b"\x04\x26\x05READY",
    "ones": b"\xff" * 1_000,
}
TAKEN_FOR_A_PEER: dict[str, bytes] = {
    "the greeting of ZeroMQ 2": b"\x01\x00",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
}
"""What begins with no 0xff is the first protocol of ZeroMQ to libzmq: a client, until it leaves."""


def test_what_does_not_speak_is_shown_the_door(fast: FastPeer, broker: BrokerProcess) -> None:
    """C60, checklist 1, 3, 4, 7: all at once; a good client works meanwhile."""
    works(fast)
    connections = {name: raw(broker) for name in NOISE}
    try:
        for name, noise in NOISE.items():
            connections[name].sendall(noise)
        for _ in range(50):
            works(fast)
        still_open = [name for name, connection in connections.items() if not ends(connection)]
        assert still_open == []
    finally:
        for connection in connections.values():
            connection.close()
    works(fast)


@needs_proc
@pytest.mark.parametrize("name", TAKEN_FOR_A_PEER)
def test_what_is_taken_for_a_peer_is_as_harmless_as_one(
    fast: FastPeer, broker: BrokerProcess, name: str
) -> None:
    """C60, checklist 3: whatever it goes on to say; once it leaves nothing of it is left."""
    works(fast)
    before = descriptors(broker.pid)
    with closing(raw(broker)) as connection:
        connection.sendall(TAKEN_FOR_A_PEER[name])
        for _ in range(20):
            works(fast)
        connection.sendall(TAKEN_FOR_A_PEER[name] * 100)
        works(fast)
    eventually(lambda: descriptors(broker.pid) <= before, "its descriptor has come back")


@needs_proc
def test_idle_connections_go_by_themselves(fast: FastPeer, broker: BrokerProcess) -> None:
    """C60, checklist 2: hundreds of them hold nobody up, and their descriptors come back."""
    works(fast)
    before = descriptors(broker.pid)
    connections = [raw(broker) for _ in range(times(300, 1_000))]
    try:
        for connection in connections:
            assert connection.recv(1), "it was accepted: the broker greets at once"
        assert statistics.median(works(fast) for _ in range(100)) < QUICK_S
        eventually(lambda: descriptors(broker.pid) <= before, "all are closed")
    finally:
        for connection in connections:
            connection.close()


@contextmanager
def handshaken(broker: BrokerProcess) -> Iterator[socket.socket]:
    """A TCP connection that has become one of ZeroMQ by hand."""
    with closing(raw(broker)) as connection:
        connection.sendall(GREETING)
        body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        connection.sendall(b"\x04" + bytes([len(body)]) + body)
        greeting = b""
        while len(greeting) < 64 + 2:
            greeting += connection.recv(4_096)
        yield connection


def test_a_connection_made_by_hand_is_one(broker: BrokerProcess) -> None:
    """The handshake of these tests is right: a request through it is answered."""
    with handshaken(broker) as connection:
        connection.sendall(b"\x01\x00" + b"\x00\x04ping")
        answer = b""
        while b"ok" not in answer:
            part = connection.recv(4_096)
            assert part
            answer += part


@needs_proc
@pytest.mark.parametrize("size", [2**31, 2**32, 2**40, 2**63 - 1, 2**64 - 1, 18 * 2**20])
def test_a_frame_that_only_claims_to_be_huge_takes_no_memory(
    fast: FastPeer, broker: BrokerProcess, size: int
) -> None:
    """C30, C60, checklist 8: the connection is cut by the claim alone."""
    works(fast)
    before = resident_bytes(broker.pid)
    with handshaken(broker) as connection:
        connection.sendall(b"\x02" + struct.pack(">Q", size))
        assert ends(connection)
    assert resident_bytes(broker.pid) - before < 8 * 2**20
    works(fast)


def test_half_a_message_harms_nobody(fast: FastPeer, broker: BrokerProcess) -> None:
    """C60: a client that dies in the middle of a frame, or between the frames of a request."""
    for part in (b"\x00\x0apub", b"\x01\x00\x01\x07publish", b"\x01\x00\x01\x07publish\x01\x01t", b"\x02"):
        with handshaken(broker) as connection:
            connection.sendall(part)
        works(fast)


def test_two_clients_with_one_identity_do_not_hear_each_other(peers: Peers, broker: BrokerProcess) -> None:
    """Checklist 20: the second one gets nothing, above all not what is meant for the first."""
    first = peers.fast(broker, identity=b"the same")
    first.publish("identity", [b"x"])
    second = peers.fast(broker, identity=b"the same")
    for _ in range(20):
        second.send_fetch("identity", 0)
        assert first.fetch("identity", 0).values == [b"x"]
    assert second.is_silent(0.1)
    first.close()
    third = peers.fast(broker, identity=b"another")
    works(third)


def test_an_identity_may_be_anything(peers: Peers, broker: BrokerProcess) -> None:
    """Checklist 12: up to the 255 bytes that ZeroMQ allows."""
    for identity in (b"x", b"\xff" * 255, b"\x01" + bytes(200), b"ping"):
        works(peers.fast(broker, identity=identity))


@needs_proc
def test_a_client_that_does_not_read_holds_nobody_up(start_broker: StartBroker, peers: Peers) -> None:
    """C60, checklist 19: it asks for gigabytes; the broker's memory is bounded, others are quick as ever."""
    broker = start_broker()
    fast = peers.fast(broker)
    for _ in range(16):
        fast.publish("t", [bytes(2**20)])
    before = resident_bytes(broker.pid)
    deaf = peers.fast(broker, unread_max=1)
    for _ in range(3_000):
        deaf.send_fetch("t", 0, bytes_max=2**20)
    took = []
    for i in range(times(300, 3_000)):
        began = time.monotonic()
        fast.publish("other", [b"%d" % i])
        took.append(time.monotonic() - began)
        assert resident_bytes(broker.pid) - before < 250 * 2**20
    assert statistics.median(took) < QUICK_S
    eventually(lambda: fast.status(limit=0).counters.get("replies_dropped", 0) > 0, "replies are dropped")
    assert len(fast.read_all("other")) == len(took)
    assert resident_bytes(broker.pid) - before < 250 * 2**20


@needs_proc
def test_a_producer_that_does_not_read_loses_only_its_replies(
    start_broker: StartBroker, peers: Peers
) -> None:
    """C60, checklist 18: its records are stored, its acknowledgements wait for it, within bounds."""
    broker = start_broker()
    fast, deaf = peers.fast(broker), peers.fast(broker, unread_max=1)
    before = resident_bytes(broker.pid)
    count = times(5_000, 50_000)
    busy_limit = 500
    for start in range(0, count, busy_limit):
        for i in range(start, start + busy_limit):
            deaf.send_publish("t", [b"%d" % i])
        fast.publish("other", [b"x"])
        stored = lambda seen=start + busy_limit: fast.describe("t").count == seen  # noqa: E731
        eventually(stored, "everything so far is stored")
    assert resident_bytes(broker.pid) - before < 64 * 2**20
    assert sum(1 for _ in fast.read_all("t")) == count


def test_a_slow_client_that_reads_gets_everything(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """C60: many replies at once, of any size, wait for him; none is dropped because it was in a hurry."""
    fast = peers.fast(broker)
    for i in range(20):
        fast.publish(topic, [b"%02d" % i + bytes(200_000)])
    slow = peers.fast(broker, unread_max=1)
    asked = [slow.send_fetch(topic, 0, bytes_max=200_000) for _ in range(150)]
    for _ in range(50):
        fast.publish(topic + "-other", [b"x"])
    for answer in slow.answers_to(asked):
        assert found_in(answer).values[0].startswith(b"00")


def test_a_client_may_come_and_go(fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """C41, C60: with requests on their way, a hundred times."""
    works(fast)
    for _ in range(times(100, 2_000)):
        with FastPeer(peers.context, broker.url) as short:
            short.send_publish(topic, [b"x"])
            short.send_fetch(topic, 0, wait_ms=60_000)
            short.publish(topic, [b"y"])
    works(fast)
    assert len(fast.read_all(topic)) == 2 * times(100, 2_000)


def test_other_socket_types_are_not_answered(peers: Peers, broker: BrokerProcess, fast: FastPeer) -> None:
    """Checklist 4, 27: a ROUTER, a SUB or a PUSH at the client port."""
    for kind in (zmq.SUB, zmq.PUSH, zmq.PULL, zmq.PUB):
        with closing(peers.context.socket(kind)) as other:
            other.set(zmq.LINGER, 0)
            other.connect(broker.url)
            if kind == zmq.PUB:
                other.send(b"ping")
            works(fast)
    with closing(peers.context.socket(zmq.DEALER)) as other:
        other.set(zmq.LINGER, 0)
        other.connect(broker.announcements)
        other.send_multipart([b"", b"ping"])
        assert not other.poll(100)
    works(fast)
