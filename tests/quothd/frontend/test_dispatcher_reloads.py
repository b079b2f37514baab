"""Requests that wait while a reload takes the rights of their client, in every state of their topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker.memory_broker import MemoryBroker
from kit.broker.open_topic import NAME, pending
from kit.broker.operations import OPERATIONS
from quothd.access.clients_file import ClientTable
from quothd.access.rights import KnownClient, Right
from quothd.access.topic_scope import EVERYTHING
from quothd.frontend.topic_states import State
from quothd.requests.pending_request import PendingRequest
from quothwire.protocol.messages import DeleteTopic, Fetch

ALICE, BOB = (KnownClient(name, (f"key of {name}",), dict.fromkeys(Right, EVERYTHING)) for name in "ab")
BEFORE = ClientTable([ALICE, BOB])
AFTER = [
    ClientTable([BOB]),
    ClientTable([KnownClient(ALICE.name, ALICE.keys), BOB]),
]
"""What a reload leaves: alice is not there any more, or has no right."""


def of(client: KnownClient, request: PendingRequest) -> PendingRequest:
    request.client = client
    return request


def fetch(after: int) -> PendingRequest:
    return pending(Fetch(after=after, wait_ms=60_000))


def publish(broker: MemoryBroker) -> None:
    broker.ask(OPERATIONS["publish"]())
    broker.settle()


def hibernate(broker: MemoryBroker) -> None:
    publish(broker)
    broker.pass_time(1_000.0)
    broker.settle()
    assert broker.dispatcher.registry.entries[NAME].state is State.HIBERNATING


def absent(_broker: MemoryBroker) -> None:
    """The fetches wait for their topic."""


def hibernating(broker: MemoryBroker) -> None:
    """The fetches wait for a record."""
    hibernate(broker)


def given(broker: MemoryBroker) -> None:
    """The topic has the fetches."""
    publish(broker)


def opening(broker: MemoryBroker) -> None:
    """The fetches wait for the log, behind a publish."""
    hibernate(broker)
    broker.ask(OPERATIONS["publish"]())
    assert broker.dispatcher.registry.entries[NAME].state is State.OPENING


def waiting(broker: MemoryBroker) -> None:
    """As in `opening`, while no topic may be opened."""
    hibernate(broker)
    broker.dispatcher.scheduler.workers_max = 0
    broker.ask(OPERATIONS["publish"]())


def closing(broker: MemoryBroker) -> None:
    """The fetches wait until the log is closed."""
    publish(broker)
    broker.dispatcher.scheduler.hibernate(broker.dispatcher.registry.entries[NAME])


@pytest.mark.parametrize("table", AFTER, ids=["no client", "no right"])
@pytest.mark.parametrize("state", [absent, hibernating, given, opening, waiting, closing])
def test_a_fetch_that_waits_is_refused_once_its_client_may_not_read(
    tmp_path: Path, state: Callable[[MemoryBroker], None], table: ClientTable
) -> None:
    """Wherever it waits, and before it has a record. That of another client goes on."""
    broker = MemoryBroker(tmp_path)
    broker.dispatcher.configure(broker.config, BEFORE)
    state(broker)
    newest = broker.newest.get(NAME, 0)
    asked = [broker.ask(of(client, fetch(newest))) for client in (ALICE, BOB)]
    broker.dispatcher.configure(broker.config, table)
    broker.settle()
    publish(broker)
    assert [broker.code(one) for one in asked] == ["denied", ""]
    for client in (ALICE, BOB):
        amounts = broker.dispatcher.access.ledger.amounts(client.name)
        assert {used for used, _ in amounts.values()} == {0}


@pytest.mark.parametrize("state", [opening, waiting])
def test_a_deletion_goes_on_when_the_request_before_it_is_refused(
    tmp_path: Path, state: Callable[[MemoryBroker], None]
) -> None:
    broker = MemoryBroker(tmp_path)
    broker.dispatcher.configure(broker.config, BEFORE)
    state(broker)
    asked = broker.ask(of(ALICE, fetch(0)))
    deletion = broker.ask(of(BOB, pending(DeleteTopic())))
    broker.dispatcher.configure(broker.config, AFTER[0])
    broker.pass_time(0.0)
    broker.settle()
    assert [broker.code(one) for one in (asked, deletion)] == ["denied", ""]
    assert NAME not in broker.dispatcher.registry.entries


def test_a_deletion_that_waits_for_the_log_is_refused(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path)
    broker.dispatcher.configure(broker.config, BEFORE)
    hibernate(broker)
    deletion = broker.ask(of(ALICE, pending(DeleteTopic())))
    broker.dispatcher.configure(broker.config, AFTER[0])
    broker.settle()
    assert broker.code(deletion) == "denied"
    publish(broker)
    assert broker.dispatcher.registry.entries[NAME].end_ordinal == 4
