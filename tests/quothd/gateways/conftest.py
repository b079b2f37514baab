"""A broker with a port for clients of Poe."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.gateways.poe import ANY_PORT, PoePeer, poe_url


@pytest.fixture(scope="module")
def poe_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Start a broker for all tests of a file."""
    with BrokerProcess(tmp_path_factory.mktemp("poe") / "data", poe_listen=ANY_PORT).running() as broker:
        yield broker


@pytest.fixture
def poe(poe_broker: BrokerProcess) -> Iterator[PoePeer]:
    """Connect to it."""
    with PoePeer(poe_url(poe_broker)) as peer:
        yield peer


@pytest.fixture
def client(poe_broker: BrokerProcess) -> Iterator[quoth.Client]:
    """Connect to it by the native protocol."""
    with quoth.connect(poe_broker.url) as client:
        yield client


@pytest.fixture
def clear(client: quoth.Client) -> Callable[[], None]:
    """Delete all topics, which begin with new ones then."""

    def delete() -> None:
        for topic in client.topics():
            client.delete_topic(topic)

    return delete
