"""The door of the front end: whose message it is, and what its client may know of."""

from __future__ import annotations

import pytest
from zmq.utils import z85

from kit.broker.open_topic import pending
from kit.broker.peers import refused
from quothd.access.access import Access, scope_of
from quothd.access.clients_file import parse_clients
from quothd.access.rights import STRANGER
from quothd.config.config import Config
from quothwire.protocol.messages import Fetch

KEY, OTHER = (z85.encode(bytes([number] * 32)).decode() for number in (1, 2))
FILE = f"""
[clients.alice]
key = "{KEY}"
publish = ["orders.*"]
read = ["prices", "orders.eu.*"]
"""


@pytest.fixture
def access() -> Access:
    return Access(Config(), parse_clients(FILE, "clients.toml"))


def test_a_message_is_of_the_client_with_its_key(access: Access) -> None:
    alice = access.client_of(KEY)
    assert alice is not None
    assert alice.name == "alice"
    assert access.client_of(OTHER) is STRANGER


def test_only_the_own_process_may_do_everything_where_there_are_keys(access: Access) -> None:
    """A User-Id that is empty, by whatever mistake, is none of the own process."""
    assert access.client_of(None) is None
    assert access.client_of("") is STRANGER
    request = pending(Fetch())
    access.admit(request)
    assert request.client is None
    for user_id in ("", OTHER, KEY):
        request.connection.user_id = user_id
        with refused("denied"):
            access.admit(request)


def test_without_keys_everything_is_allowed() -> None:
    access = Access(Config())
    for user_id in (None, "", KEY):
        assert access.client_of(user_id) is None
        assert access.subscriptions_of(user_id or "", b"or") == [b"or"]
    assert "any" in scope_of(None)


def test_a_client_subscribes_to_what_it_may_know_of(access: Access) -> None:
    alice = access.client_of(KEY)
    names = ("orders.eu.x", "orders.x", "prices", "other")
    assert [name in scope_of(alice) for name in names] == [True, True, True, False]
    assert access.subscriptions_of(KEY, b"") == [b"orders.", b"prices\0"]
    assert access.subscriptions_of(KEY, b"orders.eu.") == [b"orders.eu."]
    assert access.subscriptions_of(KEY, b"orders.x\0") == [b"orders.x\0"]
    assert access.subscriptions_of(KEY, b"other") == []
    assert access.subscriptions_of(OTHER, b"") == []
