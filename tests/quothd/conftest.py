"""What the tests of the broker share: one client through each protocol."""

from __future__ import annotations

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, HasUrl, Peers, SimplePeer
from kit.client.clients import PROTOCOLS, Client, Connect, connect


@pytest.fixture(params=PROTOCOLS)
def connect_client(request: pytest.FixtureRequest, peers: Peers) -> Connect:
    """Connects a client; the test runs once for each protocol."""

    def connect_it(broker: HasUrl) -> Client:
        return connect(peers, broker, request.param)

    return connect_it


@pytest.fixture
def client(connect_client: Connect, broker: BrokerProcess) -> Client:
    """A client of `broker`; the test runs once for each protocol."""
    return connect_client(broker)


@pytest.fixture
def simple(peers: Peers, broker: BrokerProcess) -> SimplePeer:
    """A client of `broker` that speaks the simple protocol."""
    return peers.simple(broker)


@pytest.fixture
def fast(peers: Peers, broker: BrokerProcess) -> FastPeer:
    """A client of `broker` that speaks the fast protocol."""
    return peers.fast(broker)
