"""The thread of the announcements: how it starts and ends, what it is handed, and whom it ends."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from kit import zmtp
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context, FastPeer, Peers, Subscriber
from kit.broker.subscribers import Closings, counted, hears, subscriptions_are
from kit.curve import CurveConnection
from kit.deadlines import eventually
from kit.keys import KeyFiles
from kit.machine.ports import free_port
from kit.machine.processes import in_child
from quothd import Broker
from quothd.announcing.announcer import Announcer
from quothd.announcing.sockets import open_publisher
from quothd.announcing.subscribers import Subscribers
from quothd.config.config import Config
from quothlog.storage.clock import SystemClock
from quothwire.protocol import announcement
from quothwire.protocol.messages import Ping


def announcer_of(broker: Broker) -> Announcer:
    front_end: Any = broker._front_end
    return front_end.announcer  # type: ignore[no-any-return]


def place_of(broker: Broker) -> str:
    """Return the URL of the announcements for clients in this process."""
    return broker.urls[-1] + announcement.SUFFIX


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Announcer, str, Any]]:
    """Return an announcer with CURVE, its URL, and the public key of its server."""
    with zmq.Context(2) as context:
        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        authenticator.configure_curve(domain="*", location=zmq.auth.CURVE_ALLOW_ANY)
        public, secret = zmq.curve_keypair()
        publisher = open_publisher(context)
        publisher.remote.set(zmq.CURVE_SERVER, 1)
        publisher.remote.set(zmq.CURVE_SECRETKEY, secret)
        publisher.remote.set(zmq.ZAP_DOMAIN, b"test")
        publisher.remote.bind("tcp://127.0.0.1:*")
        url = publisher.remote.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        announcer = Announcer(publisher, Config(dir=tmp_path, server_key="a.key"), SystemClock())
        announcer.start()
        yield announcer, url, public
        announcer.stop()
        authenticator.stop()


def curve_subscriber(context: Context, url: str, server: bytes, key: tuple[bytes, bytes]) -> Subscriber:
    """Make a subscriber to everything, with a key."""
    subscriber = Subscriber(context, "inproc://nowhere")
    subscriber.socket.set(zmq.CURVE_SERVERKEY, server)
    subscriber.socket.set(zmq.CURVE_PUBLICKEY, key[0])
    subscriber.socket.set(zmq.CURVE_SECRETKEY, key[1])
    subscriber.socket.subscribe(b"")
    subscriber.socket.connect(url)
    return subscriber


def test_connections_of_a_key_are_ended_and_others_are_not(
    own: tuple[Announcer, str, bytes], peers: Peers
) -> None:
    announcer, url, server = own
    keys = [zmq.curve_keypair() for _ in range(2)]
    alice, bob = (peers.keep(curve_subscriber(peers.context, url, server, key)) for key in keys)
    eventually(lambda: announcer.counters()["subscriptions"] == 2, "both have subscribed")
    closings = peers.keep(Closings(alice)), peers.keep(Closings(bob))
    announcer.end_connections([keys[0][0].decode()])
    assert closings[0].happen()
    assert announcer.counters()["subscribers_closed"] == 1
    announcer.news["t"] = 7
    announcer.hand_over()
    assert bob.next() == ("t", 7)


def test_subscriptions_count_once_they_have_effect_and_until_they_have_none(
    own: tuple[Announcer, str, bytes], peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn of the thread takes many messages: in the middle of it, the counter is as before."""
    announcer, url, server = own
    found: set[tuple[int, bool]] = set()
    take = Subscribers.take

    def take_and_look(subscribers: Subscribers, most: int) -> int:
        taken = take(subscribers, most)
        found.add((announcer.counters()["subscriptions"], announcer.is_wanted))
        return taken

    monkeypatch.setattr(Subscribers, "take", take_and_look)
    with curve_subscriber(peers.context, url, server, zmq.curve_keypair()):
        eventually(lambda: announcer.counters()["subscriptions"] == 1, "it has subscribed")
    eventually(lambda: announcer.counters()["subscriptions"] == 0, "it has left")
    assert found == {(0, False), (1, True)}


def test_news_of_a_topic_are_joined_and_any_thread_hands_them_over(
    own: tuple[Announcer, str, bytes], peers: Peers
) -> None:
    """Another thread becomes the front end when a disk stalls."""
    announcer, url, server = own
    listener = peers.keep(curve_subscriber(peers.context, url, server, zmq.curve_keypair()))
    eventually(lambda: announcer.is_wanted, "it has subscribed")

    def hand_over(first: int) -> None:
        for pointer in range(first, first + 10_000):
            announcer.news["t"] = pointer
            announcer.hand_over()

    for first in (1, 10_001):
        front_end = threading.Thread(target=hand_over, args=(first,))
        front_end.start()
        front_end.join()
    heard = [0]
    while heard[-1] < 20_000:
        topic, pointer = listener.next()
        assert topic == "t"
        assert pointer > heard[-1]
        heard.append(pointer)
    assert len(heard) < 10_000
    assert listener.is_silent(0.02)
    assert not announcer.news


def test_without_subscribers_nothing_is_handed_over(embed: Callable[..., Broker]) -> None:
    broker = embed()
    announcer = announcer_of(broker)
    with FastPeer(broker.context, broker.url) as fast:
        for _ in range(100):
            fast.publish("t", [b"x"])
        assert counted(fast, "announcements") == 0
        assert not announcer.is_wanted
        with Subscriber(broker.context, place_of(broker), b"t") as listener:
            hears(fast, listener, "t")
        subscriptions_are(fast, 0)
        eventually(lambda: not announcer.is_wanted, "it knows that there is no subscriber")
        before = counted(fast, "announcements")
        fast.publish("t", [b"x"])
        assert counted(fast, "announcements") == before
        assert not announcer.news


def test_a_broker_without_a_thread_for_announcements_does_not_start(
    tmp_path: Path, refuse_threads: Callable[[str], None]
) -> None:
    """The attempt leaves no thread, socket or descriptor, and another one succeeds."""
    before = set(threading.enumerate())
    port = free_port()
    with Broker(tmp_path / "data", host="127.0.0.1", port=port):
        pass
    gc.collect()
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        refuse_threads("quoth-announcer")
        with pytest.raises(RuntimeError, match="can't start new thread"):
            Broker(tmp_path / "data", host="127.0.0.1", port=port).start()
        refuse_threads("")
        gc.collect()
        eventually(lambda: set(threading.enumerate()) <= before, "all threads have ended")
        assert len(os.listdir("/proc/self/fd")) <= open_files
    restarted = Broker(tmp_path / "data", host="127.0.0.1", port=port)
    with restarted as broker, FastPeer(broker.context, broker.url) as fast:
        fast.publish("t", [b"x"])


def test_a_stop_ends_the_thread_while_subscribers_are_connected(
    embed: Callable[..., Broker], peers: Peers
) -> None:
    """Subscribers in the process are, too. A forked child has had the descriptors meanwhile."""
    broker = embed()
    far = peers.fast(broker)
    url = broker.url
    place = announcer_of(broker)._publisher.remote.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
    listener = peers.keep(Subscriber(peers.context, place, b""))
    near = Subscriber(broker.context, place_of(broker), b"")
    hears(far, listener, "t")
    hears(far, near, "t")
    assert in_child(lambda: os.getpid() > 0) == "True"
    hears(far, listener, "t")
    near.close()
    closings = peers.keep(Closings(listener))
    broker.stop()
    assert closings.happen()
    assert "quoth-announcer" not in {thread.name for thread in threading.enumerate()}
    assert not broker.failure
    assert url.startswith("tcp://127.0.0.1:")
    assert broker.context.closed or eventually(lambda: broker.context.closed, "the context has ended")


def test_a_failure_of_the_thread_is_logged_and_leaves_requests_alone(
    embed: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = embed()
    announcer = announcer_of(broker)

    def fail(_topic: str, _newest: int) -> bytes:
        raise MemoryError("no memory for an announcement")

    with (
        FastPeer(broker.context, broker.url) as fast,
        Subscriber(broker.context, place_of(broker), b"") as listener,
    ):
        hears(fast, listener, "t")
        monkeypatch.setattr("quothd.announcing.announcer.announcement.encode", fail)
        fast.publish("t", [b"x"])
        eventually(lambda: not announcer.is_wanted, "the thread has ended")
        assert fast.publish("t", [b"x"]).last
        fast.call(Ping())  # the front end hands over the news before it takes this
        assert not announcer.news
        broker.stop()
    assert "event=announcer_failed" in caplog.text


# -- whose connection it is ---------------------------------------------------------------------------------


def raw_subscriber(url: str, user_id: bytes) -> socket.socket:
    """Connect to announcements without a key, and subscribe to everything. user_id: what the client says."""
    connection = zmtp.raw_to(url)
    connection.sendall(zmtp.opening(b"SUB", User_Id=user_id))
    received = b""
    while b"READY" not in received:
        received += connection.recv(1)
    connection.sendall(zmtp.frame(b"\1"))
    return connection


@pytest.mark.parametrize("user_id", [b"\xff\xfe", b"\0", b"", b"x" * 255])
def test_without_keys_what_a_client_says_about_itself_is_not_read(
    broker: BrokerProcess, fast: FastPeer, peers: Peers, user_id: bytes
) -> None:
    subscriptions_are(fast, 0)  # those of the test before have ended
    listener = peers.keep(Subscriber(peers.context, broker.announcements, b""))
    with raw_subscriber(broker.announcements, user_id) as raw:
        subscriptions_are(fast, 2)
        hears(fast, listener, "t")
        received = b""
        while b"t\0" not in received:
            received += raw.recv(4_096)
    assert counted(fast, "announcer_running") == 1


def test_without_keys_no_client_takes_the_name_of_another_one(tmp_path: Path) -> None:
    """Neither does the end of a client's connections end another one."""
    with zmq.Context(2) as context:
        publisher = open_publisher(context)
        publisher.remote.bind("tcp://127.0.0.1:*")
        url = publisher.remote.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        asked: list[str] = []

        def prefixes_for(user_id: str, prefix: bytes) -> list[bytes]:
            asked.append(user_id)
            return [prefix]

        announcer = Announcer(publisher, Config(dir=tmp_path), SystemClock(), prefixes_for)
        announcer.start()
        try:
            with raw_subscriber(url, b"alice"):
                eventually(lambda: asked, "it has subscribed")
        finally:
            announcer.stop()
    assert asked == [""]


def test_with_keys_a_client_cannot_take_the_rights_of_another_one(
    embed: Callable[..., Broker], tmp_path: Path, peers: Peers
) -> None:
    """The authenticator's answer goes before what the client says about itself."""
    files = KeyFiles(tmp_path)
    files.add("operator")
    alice, bob = files.add("alice", "a.*"), files.add("bob", "b.*")
    broker = embed(**files.settings)
    fast = peers.keep(FastPeer(broker.context, broker.url))
    url = broker.urls[0]
    port = int(url.rpartition(":")[2]) + 1
    for forged in (alice.public_key.encode(), b"\xff\xfe"):
        metadata = zmtp.metadata(b"SUB", User_Id=forged)
        with closing(CurveConnection(f"tcp://127.0.0.1:{port}", bob, metadata)) as connection:
            connection.send(b"\1")
            subscriptions_are(fast, 1)
            for topic in ("a.1", "b.1"):
                fast.publish(topic, [b"x"])
            assert connection.receive().startswith(b"b.1\0")
        subscriptions_are(fast, 0)


def test_a_failed_thread_shows_in_the_status_of_the_broker_and_of_its_service(
    embed: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch, peers: Peers
) -> None:
    broker = embed()
    info: Any = broker._front_end
    fast = peers.fast(broker)
    assert counted(fast, "announcer_running") == 1
    assert "announcer" not in info._describe()

    def fail(_self: object, _message: object) -> None:
        raise MemoryError("no memory for a subscription")

    monkeypatch.setattr("quothd.announcing.subscribers.Subscribers._take", fail)
    place = announcer_of(broker)._publisher.remote.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
    peers.keep(Subscriber(peers.context, place, b""))
    eventually(lambda: counted(fast, "announcer_running") == 0, "the status says so")
    assert "announcer down" in info._describe()
