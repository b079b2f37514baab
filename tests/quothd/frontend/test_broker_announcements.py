"""The address of announcements: the one by which a client has reached the broker."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker, free_port
from kit.broker.peers import Peers, Subscriber
from kit.deadlines import DEADLINE_S
from kit.machine.hosts import Machine, two_machines
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


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Machine, Machine]]:
    """Return the broker's machine and another one."""
    with two_machines() as ends:
        yield ends


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "cable"])
def test_a_client_on_another_machine_hears_announcements(
    machines: tuple[Machine, Machine], start_broker: StartBroker, host: str
) -> None:
    here, there = machines
    broker = start_broker(host=host, insecure=True, prefix=here.prefix)
    port = int(broker.url.rpartition(":")[2])
    addresses = [here.v4, f"[{here.v6}]"] if host == "::" else [here.v4]
    for address in addresses:
        assert heard_from(there, f"tcp://{address}:{port}") == f"tcp://{address}:{port + 1} t"


def welcome_of(peers: Peers, url: str) -> Welcome:
    """Return the reply to `hello` at an address."""
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


def test_a_broker_at_all_addresses_announces_a_port_and_no_address(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(host="0.0.0.0", insecure=True)
    port = int(broker.url.rpartition(":")[2])
    welcome = welcome_of(peers, f"tcp://127.0.0.1:{port}")
    assert (welcome.announcements, welcome.announcements_port) == ("", port + 1)
    assert hears(peers, f"tcp://127.0.0.1:{port}", "t")


def test_a_broker_at_one_address_announces_it(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(host="localhost")
    port = int(broker.url.rpartition(":")[2])
    welcome = welcome_of(peers, broker.url)
    assert (welcome.announcements, welcome.announcements_port) == (f"tcp://127.0.0.1:{port + 1}", port + 1)


def test_a_broker_at_several_addresses_announces_at_each(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    ports, path = (free_port(), free_port()), f"ipc://{tmp_path}/at"
    listen = f"tcp://127.0.0.2:{ports[1]},{path}"
    broker = start_broker(host="127.0.0.1", port=ports[0], listen=listen)
    first, second = broker.url, f"tcp://127.0.0.2:{ports[1]}"
    welcome = welcome_of(peers, second)
    assert (welcome.announcements, welcome.announcements_port) == ("", 0)
    for number, url in enumerate((first, second, path)):
        assert hears(peers, url, f"t{number}"), url


def test_a_broker_without_tcp_announces_beside_its_address(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    broker = start_broker(host="", listen=f"ipc://{tmp_path}/at")
    welcome = welcome_of(peers, broker.url)
    assert (welcome.announcements, welcome.announcements_port) == ("", 0)
    assert hears(peers, broker.url, "t")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_broker_at_all_addresses_of_ipv6_announces_a_port_and_no_address(
    start_broker: StartBroker, peers: Peers
) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
    broker = start_broker(host="::", insecure=True)
    port = int(broker.url.rpartition(":")[2])
    welcome = welcome_of(peers, f"tcp://127.0.0.1:{port}")
    assert (welcome.announcements, welcome.announcements_port) == ("", port + 1)
