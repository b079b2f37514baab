"""Subscriptions of connections: what they get, and how many they may have."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, Subscriber
from kit.broker.subscribers import Closings, counted, hears, random_prefixes, subscriptions_are
from kit.deadlines import eventually
from kit.machine.processes import resident_bytes
from kit.scale import times
from kit.zmtp import frame, handshaken, read_to_end
from quothwire.protocol import announcement

Subscribe = Callable[..., Subscriber]


@pytest.fixture(params=["tcp", "ipc"])
def endpoints(request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path) -> tuple[str, str]:
    """Return the endpoints of a broker for requests and for announcements."""
    place = f"ipc://{tmp_path}/at"
    broker = start_broker(listen=place, connection_subscriptions_max=10, subscriptions_max=30)
    if request.param == "tcp":
        return broker.url, broker.announcements
    return place, place + announcement.SUFFIX


def test_subscriptions_are_counted_once_and_end_with_their_unsubscription(
    endpoints: tuple[str, str], peers: Peers, subscribe: Subscribe
) -> None:
    """As with an ordinary PUB: a SUB counts its own duplicates, and the last one ends the subscription."""
    url, place = endpoints
    fast = peers.fast(url)
    exact = announcement.subscription("t")
    listener = subscribe(place, exact, exact, b"other")
    subscriptions_are(fast, 2)
    hears(fast, listener, "t")
    fast.publish("t-longer", [b"x"])
    listener.socket.unsubscribe(b"other")
    subscriptions_are(fast, 1)
    listener.socket.unsubscribe(exact)
    fast.publish("t", [b"x"])
    hears(fast, listener, "t")
    listener.socket.unsubscribe(exact)
    subscriptions_are(fast, 0)
    announced = counted(fast, "announcements")
    unheard = fast.publish("t", [b"x"]).last
    assert counted(fast, "announcements") == announced
    listener.socket.subscribe(exact)
    found: list[tuple[str, int]] = []

    def is_heard() -> bool:
        fast.publish("t", [b"x"])
        while not listener.is_silent(0.02):
            found.append(listener.next())
        return any(pointer > unheard for _, pointer in found)

    eventually(is_heard, "an announcement of a later record")
    assert {topic for topic, _ in found} == {"t"}
    assert unheard not in {pointer for _, pointer in found}


def test_a_connection_with_too_many_subscriptions_is_closed_and_comes_back_with_fewer(
    endpoints: tuple[str, str], peers: Peers, subscribe: Subscribe
) -> None:
    url, place = endpoints
    fast = peers.fast(url)
    good = subscribe(place, announcement.subscription("t"))
    subscriptions_are(fast, 1)
    prefixes = random_prefixes(9)
    listener = subscribe(place, *prefixes, announcement.subscription("t"))
    subscriptions_are(fast, 11)
    hears(fast, listener, "t")
    closings = peers.keep(Closings(listener))
    listener.socket.subscribe(b"one too many")
    assert closings.happen()
    assert counted(fast, "subscribers_closed") >= 1
    for prefix in (*prefixes, b"one too many"):
        listener.socket.unsubscribe(prefix)

    def is_back() -> bool:
        listener.is_silent(0)  # its socket subscribes again when it is used
        return counted(fast, "subscriptions") == 2

    eventually(is_back, "it has connected again")
    for one in (good, listener):
        while not one.is_silent(0.05):
            one.next()
        hears(fast, one, "t")


def test_the_connection_with_most_subscriptions_is_closed_where_all_have_too_many(
    endpoints: tuple[str, str], peers: Peers, subscribe: Subscribe
) -> None:
    url, place = endpoints
    fast = peers.fast(url)
    few = subscribe(place, announcement.subscription("t"), b"a")
    subscriptions_are(fast, 2)
    count, closings = 2, []
    for size in (10, 9, 9):
        listener = subscribe(place, *random_prefixes(size))
        count += size
        subscriptions_are(fast, count)
        closings.append(peers.keep(Closings(listener)))
    few.socket.subscribe(b"b")
    assert closings[0].happen()
    eventually(lambda: counted(fast, "subscriptions") == 21, "the others stay")
    hears(fast, few, "t")


def test_a_long_prefix_counts_more_and_ends_its_connection(
    endpoints: tuple[str, str], peers: Peers, subscribe: Subscribe
) -> None:
    """libzmq takes memory for each byte of a prefix. A topic's name has up to 200 bytes."""
    url, place = endpoints
    fast = peers.fast(url)
    name = "n" * 200
    listener = subscribe(place, announcement.subscription(name))
    subscriptions_are(fast, 1 + 201 // 32)
    hears(fast, listener, name)
    for size in (400, 2_000):
        hostile = subscribe(place, b"first")
        subscriptions_are(fast, 1 + 201 // 32 + 1)
        with Closings(hostile) as closings:
            hostile.socket.subscribe(b"x" * size)
            assert closings.happen()
        hostile.close()
        subscriptions_are(fast, 1 + 201 // 32)
    hears(fast, listener, name)


def test_a_prefix_of_17_mb_ends_its_connection_before_it_takes_memory(
    broker: BrokerProcess, fast: FastPeer
) -> None:
    """Written by hand: libzmq's own SUB takes 30 bytes for each byte of a prefix."""
    fast.publish("t", [b"x"])
    before = resident_bytes(broker.pid)
    host, _, port = broker.announcements.removeprefix("tcp://").rpartition(":")
    greeting = b"\xff" + bytes(8) + b"\x7f\3\0" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\5READY\x0bSocket-Type" + struct.pack("!I", 3) + b"SUB"
    frame = b"\2" + struct.pack("!Q", 17 * 2**20) + b"\1"
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(greeting + b"\4" + bytes([len(ready)]) + ready + frame)
        with suppress(ConnectionError):
            for _ in range(17 * 2**4):
                raw.sendall(b"x" * 2**16)
            while raw.recv(2**16):
                pass
    subscriptions_are(fast, 0)
    assert resident_bytes(broker.pid) - before < 2**22


def test_a_new_connection_with_the_descriptor_of_an_old_one_has_no_subscriptions(
    endpoints: tuple[str, str], peers: Peers, subscribe: Subscribe
) -> None:
    """The next connection gets the descriptor of the one that has ended: each has as many as it may."""
    url, place = endpoints
    fast = peers.fast(url)
    for _ in range(20):
        listener = subscribe(place, *random_prefixes(9), announcement.subscription("t"))
        subscriptions_are(fast, 10)
        listener.close()
        subscriptions_are(fast, 0)
    assert counted(fast, "subscribers_closed") == 0


def test_a_subscriber_that_does_not_read_holds_no_memory_and_stops_no_other(
    broker: BrokerProcess, fast: FastPeer, subscribe: Subscribe
) -> None:
    silent = subscribe(broker.announcements, b"")
    silent.socket.rcvhwm = 1
    listener = subscribe(broker.announcements, announcement.subscription("t"))
    subscriptions_are(fast, 2)
    announced = counted(fast, "announcements")

    def have_been_sent() -> bool:
        fast.answers_to([fast.send_publish("t", [b"x"]) for _ in range(100)])
        return counted(fast, "announcements") - announced > 300

    eventually(have_been_sent, "more than its queue has room for")
    while not listener.is_silent(0.05):
        listener.next()
    hears(fast, listener, "t")


def test_subscriptions_count_once_and_may_end_before_they_begin(
    broker: BrokerProcess, fast: FastPeer, subscribe: Subscribe, peers: Peers
) -> None:
    """XSUB sends what it likes."""
    with peers.context.socket(zmq.XSUB) as raw:
        raw.set(zmq.LINGER, 0)
        raw.connect(broker.announcements)
        for message in (b"\0never subscribed", b"\1t", b"\1t", b"\0t", b"\1" + b"a"):
            raw.send(message)
        subscriptions_are(fast, 2)
        listener = subscribe(broker.announcements, announcement.subscription("t"))
        hears(fast, listener, "t")
    subscriptions_are(fast, 1)  # of the other one


@pytest.mark.parametrize("other", [b"", b"\2text"])
def test_a_message_that_is_no_subscription_ends_its_connection_and_gives_nothing_of_another_one(
    start_broker: StartBroker, peers: Peers, other: bytes
) -> None:
    """libzmq would subscribe the connection of the next message, which may have no right to that."""
    broker = start_broker()
    fast = peers.fast(broker)
    place = SimpleNamespace(url=broker.announcements)
    for _ in range(times(5, 100)):
        with handshaken(place, kind=b"SUB") as attacker, handshaken(place, kind=b"SUB") as victim:
            broker.freeze()
            attacker.sendall(frame(other))
            victim.sendall(frame(announcement.subscription("v")) * 2)
            attacker.sendall(frame(announcement.subscription("a")) * 2)
            os.kill(broker.pid, signal.SIGCONT)
            received = read_to_end(attacker)
            for topic in ("v", "a"):
                fast.publish(topic, [b"x"])
            victim.settimeout(0.05)
            with suppress(TimeoutError, ConnectionError):
                assert b"a\0" not in victim.recv(65_536)
            assert b"v\0" not in received
            assert b"a\0" not in received
    subscriptions_are(fast, 0)


def test_a_reload_changes_the_limits(start_broker: StartBroker, tmp_path: Path, peers: Peers) -> None:
    file = tmp_path / "quothd.toml"
    file.write_text("connection_subscriptions_max = 10\n")
    broker = start_broker("--config", str(file))
    fast = peers.fast(broker)
    listener = peers.keep(Subscriber(peers.context, broker.announcements, *random_prefixes(10)))
    subscriptions_are(fast, 10)
    file.write_text("connection_subscriptions_max = 20\n")
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_for("changed=connection_subscriptions_max")
    for prefix in random_prefixes(10):
        listener.socket.subscribe(prefix)
    subscriptions_are(fast, 20)
    assert counted(fast, "subscribers_closed") == 0
