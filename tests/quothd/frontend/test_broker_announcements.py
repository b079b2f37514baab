"""Announcements of new records, and their address: the one by which a client has reached the broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, Subscriber, replied
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.networks import Machine, two_machines
from kit.machine.ports import free_port
from quothwire.protocol import announcement
from quothwire.protocol.messages import Hello, Welcome

CLIENT = """
import sys, time, zmq
from quoth import connect
from quothwire.protocol import announcement

with connect(sys.argv[1], timeout=10) as client:
    where = announcement.endpoint(client.url, client.hello())
    with zmq.Context() as context, context.socket(zmq.SUB) as heard:
        heard.set(zmq.IPV6, 1)
        heard.set(zmq.LINGER, 0)
        heard.subscribe(announcement.subscription("t"))
        heard.connect(where)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            client.publish("t", b"x")
            if heard.poll(20):
                print(where, announcement.decode(heard.recv())[0])
                break
"""
"""A client that receives the announcement of its publish, and prints where it subscribed."""


def heard_from(machine: Machine, url: str) -> str:
    """Run the client on another machine; returns its output."""
    command = [*machine.prefix, sys.executable, "-W", "error", "-c", CLIENT, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_client_on_another_machine_receives_announcements(start_broker: StartBroker) -> None:
    with two_machines() as (here, there):
        broker = start_broker(host="::", insecure=True, prefix=here.prefix)
        port = int(broker.url.rpartition(":")[2])
        for address in (here.v4, f"[{here.v6}]"):
            assert heard_from(there, f"tcp://{address}:{port}") == f"tcp://{address}:{port + 1} t"


def welcome_of(peers: Peers, url: str) -> Welcome:
    with peers.fast(url) as fast:
        reply = fast.call(Hello())
    assert isinstance(reply, Welcome)
    return reply


def hears(peers: Peers, url: str, topic: str) -> bool:
    """True if a client that reaches the broker there receives announcements."""
    where = announcement.endpoint(url, welcome_of(peers, url))
    heard = peers.keep(Subscriber(peers.context, where, announcement.subscription(topic)))
    fast = peers.fast(url)
    for _ in range(500):
        fast.publish(topic, [b"x"])
        if not heard.is_silent(0.02):
            return heard.next()[0] == topic
    return False


@pytest.mark.parametrize(
    ("settings", "announced"),
    [
        ({"host": "0.0.0.0", "insecure": True}, ("", 1)),
        ({"host": "localhost"}, ("tcp://127.0.0.1:{}", 1)),
        ({"host": "127.0.0.1", "listen": "tcp://127.0.0.2:{other},ipc://{directory}/at"}, ("", None)),
        ({"host": "", "listen": "ipc://{directory}/at"}, ("", None)),
    ],
    ids=["all addresses", "one address", "several addresses", "no tcp"],
)
def test_a_broker_announces_an_address_or_a_port_if_it_has_one(
    start_broker: StartBroker,
    peers: Peers,
    tmp_path: Path,
    settings: dict[str, Any],
    announced: tuple[str, int | None],
) -> None:
    """A client receives announcements at each address by which it can reach the broker."""
    other = free_port()
    listen = settings.get("listen", "").format(other=other, directory=tmp_path)
    broker = start_broker(**{**settings, "listen": listen})
    first = broker.url.replace("0.0.0.0", "127.0.0.1")
    address, beside = announced
    port = int(first.rpartition(":")[2]) + beside if beside else 0
    for number, url in enumerate(filter(None, [first, *listen.split(",")])):
        welcome = welcome_of(peers, url)
        assert (welcome.announcements, welcome.announcements_port) == (address.format(port), port)
        assert hears(peers, url, f"t{number}"), url


def test_an_announced_record_can_be_read(
    peers: Peers, fast: FastPeer, broker: BrokerProcess, topic: str
) -> None:
    """The pointers of a topic rise and end with the newest. A longer or a shorter name is another topic."""
    listening = peers.keep(Subscriber(peers.context, broker.announcements, announcement.subscription(topic)))

    def hears() -> bool:
        fast.publish(topic, [b"x"])
        return not listening.is_silent(0.05)

    eventually(hears, "the subscription has arrived")
    for other in (topic + "-longer", topic[:-1]):
        fast.publish(other, [b"x"])
    asked = [fast.send_publish(topic, [b"%d" % i]) for i in range(500)]
    last = max(replied(answer).last for answer in fast.answers_to(asked))
    heard = [0]
    while heard[-1] != last:
        (frame,) = listening.receive_frames()
        name, _, pointer = frame.partition(b"\0")
        assert name == topic.encode()
        assert int(pointer) > heard[-1]
        heard.append(int(pointer))
        assert fast.fetch(topic, heard[-1] - 1).records[0].pointer == heard[-1]
    assert listening.is_silent(0.1)
