"""Keys at the endpoints of a broker: only clients whose public keys are in the clients file get in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

import quoth
from kit.broker.brokers import StartBroker
from kit.broker.peers import Context, Peers, Subscriber, set_key
from kit.deadlines import eventually
from kit.keys import (
    BROKEN_OFF,
    DENIED,
    MISMATCH,
    SUCCEEDED,
    KeyFiles,
    connecting,
    end_of_handshake,
    handshake,
    new_key,
)
from kit.zmtp import GREETING, raw_to, read_to_end, ready
from quothd import Broker
from quothwire.protocol import announcement
from quothwire.protocol.messages import Ping, Pong
from quothwire.security.key_file import Key

FLOOD = 1_000


def endpoints(broker: Broker) -> list[tuple[str, int]]:
    """Every endpoint for other processes, and the kind of socket that connects to it."""
    tcp, ipc, _ = broker.urls
    address, _, port = tcp.rpartition(":")
    beside = [f"{address}:{int(port) + 1}", ipc + announcement.SUFFIX]
    return [(tcp, zmq.DEALER), (ipc, zmq.DEALER), *((url, zmq.SUB) for url in beside)]


@pytest.fixture
def broker(embed_with_keys: Callable[..., Broker], tmp_path: Path) -> Broker:
    return embed_with_keys(listen=[f"ipc://{tmp_path}/socket"])


def known(broker: Broker, keys: KeyFiles, name: str) -> Key:
    """Return a new key that the broker knows."""
    key = keys.add(name)
    broker.reload(broker.config)
    return key


def test_known_keys_get_in_at_every_endpoint_and_others_at_none(
    broker: Broker, keys: KeyFiles, context: Context, peers: Peers
) -> None:
    alice = known(broker, keys, "alice")
    stranger = new_key("stranger", keys.server)
    astray = alice._replace(server_keys=(new_key("another broker").public_key,))
    for url, kind in endpoints(broker):
        for key, end in ((alice, SUCCEEDED), (stranger, DENIED), (None, MISMATCH), (astray, BROKEN_OFF)):
            found = handshake(context, url, key, kind)
            is_either = end == MISMATCH and found == BROKEN_OFF  # the broker has closed it first
            assert found == end or is_either, (url, key)
        if kind == zmq.DEALER:
            assert isinstance(peers.fast(url, key=alice).call(Ping()), Pong)


_PING = b"\0\x04ping"
OTHER_HANDSHAKES: dict[str, bytes] = {
    "NULL": GREETING + ready() + b"\1\0" + _PING,
    "PLAIN": GREETING.replace(b"NULL\0", b"PLAIN") + b"\x04\x0d\x05HELLO\x03bob\x02pw",
    "an unknown one": GREETING.replace(b"NULL\0", b"QUOTH") + ready(),
    "ZMTP 1": b"\1\0" + b"\1\1" + b"\5\0ping",
    "ZMTP 2": GREETING[:10] + b"\1\5" + b"\0\0" + b"\1\0" + _PING,
    "CURVE, and a message at once": GREETING.replace(b"NULL\0", b"CURVE") + b"\1\0" + _PING,
    "CURVE, and noise for a HELLO": GREETING.replace(b"NULL\0", b"CURVE") + b"\4\xc8\5HELLO" + bytes(194),
}
"""What a client without CURVE, or of another version of ZeroMQ, sends, with a ping behind it."""


@pytest.mark.parametrize("sent", OTHER_HANDSHAKES.values(), ids=OTHER_HANDSHAKES)
def test_no_other_handshake_gets_into_a_broker_with_keys(
    broker: Broker, keys: KeyFiles, peers: Peers, sent: bytes
) -> None:
    alice = peers.fast(broker.urls[0], key=known(broker, keys, "alice"))
    before = alice.status(limit=0).counters["requests"]
    with raw_to(broker.urls[0]) as connection:
        connection.sendall(sent)
        answer = read_to_end(connection)
    assert b"pong" not in answer
    assert alice.status(limit=0).counters["requests"] == before + 1


def test_a_client_with_a_key_cannot_choose_its_identity(
    broker: Broker, keys: KeyFiles, peers: Peers, context: Context
) -> None:
    """Another client could choose the same one, and get its answers."""
    alice = known(broker, keys, "alice")
    good = peers.fast(broker.urls[0], key=alice)

    def ended() -> int:
        return int(good.status(limit=0).counters.get("connections_ended", 0))

    for identity in (b"alice", b"\1", b"x" * 255, b"\0" + bytes(4)):
        before = ended()
        with context.socket(zmq.DEALER) as other:
            other.set(zmq.LINGER, 0)
            other.set(zmq.IDENTITY, identity)
            set_key(other, alice)
            other.connect(broker.urls[0])

            def is_ended() -> bool:
                """Send one more request: those of the first seconds could be late ones of another client."""
                other.send_multipart([b"", b"ping"])
                return ended() > before  # noqa: B023

            eventually(is_ended, "its connection is ended")
            assert not other.poll(0)


def test_a_broker_without_keys_refuses_clients_with_one(
    embed: Callable[..., Broker], context: Context
) -> None:
    broker = embed()
    key = new_key("alice", new_key("broker"))
    assert handshake(context, broker.urls[0], key) in (MISMATCH, BROKEN_OFF)
    assert handshake(context, broker.urls[0], None) == SUCCEEDED


def test_announcements_reach_subscribers_with_a_key(
    broker: Broker, keys: KeyFiles, peers: Peers, context: Context
) -> None:
    alice = known(broker, keys, "alice")
    fast = peers.fast(broker.urls[0], key=alice)
    for url, kind in endpoints(broker):
        if kind == zmq.SUB:
            heard = peers.keep(Subscriber(context, url, announcement.subscription("a"), key=alice))
            eventually(lambda: fast.publish("a", [b"1"]) and not heard.is_silent(0.01), "it is subscribed")  # noqa: B023
            assert heard.next()[0] == "a"


@pytest.mark.parametrize("with_keys", [True, False])
def test_a_client_in_the_brokers_process_needs_no_key(
    embed: Callable[..., Broker], keys: KeyFiles, with_keys: bool
) -> None:
    for host in ("", "127.0.0.1"):
        broker = embed(host=host, **(keys.settings if with_keys else {}))
        with quoth.connect(broker) as client:
            client.publish("greetings", b"hello")
            assert [one.value for one in client.read("greetings")][-1] == b"hello"
        broker.stop()


def test_a_flood_of_denied_handshakes_leaves_clients_served_and_the_log_short(
    start_broker: StartBroker, keys: KeyFiles, context: Context, peers: Peers
) -> None:
    alice = keys.add("alice")
    broker = start_broker(**keys.settings)
    fast = peers.fast(broker.url, key=alice)
    fast.publish("a", [b"before"])
    for _ in range(FLOOD // 50):
        flood = [connecting(context, broker.url, new_key("stranger", keys.server)) for _ in range(50)]
        monitors = [one.__enter__() for one in flood]
        assert {end_of_handshake(monitor) for monitor in monitors} == {DENIED}
        for one in flood:
            one.__exit__(None, None, None)
        fast.publish("a", [b"during"])
        assert handshake(context, broker.url, alice) == SUCCEEDED
    assert fast.status(limit=0).counters["connections_denied"] == FLOOD
    assert broker.terminate() == 0
    about = [line for line in broker.stderr.splitlines() if "event=connection" in line]
    assert 1 < len(about) <= 5
    assert "address=127.0.0.1" in about[0]
    assert f"number={FLOOD - len(about) + 1}" in about[-1]
