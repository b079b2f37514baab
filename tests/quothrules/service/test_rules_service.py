"""The service that runs rule sets: none of them hinders another one, and the states of all are kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.proxies import Meddler
from kit.deadlines import DEADLINE_S, eventually
from kit.rules import add_rules, remove_rules
from quoth import Client, NotFound
from quoth.rules.rule_state import STATS_TOPIC
from quothrules.__main__ import _raise_limits
from quothrules.service import rules_service
from quothrules.service.rule_report import saved_states
from quothrules.service.rules_service import RulesService
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Call
from quothwire.protocol.messages import Operation


@contextmanager
def running(client: Client) -> Iterator[None]:
    """Run the rule sets of a broker in a thread."""
    service = RulesService(client, report=lambda *_, **__: None)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield
    finally:
        service.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker of each test alone, which runs no rules itself."""
    return start_broker(rules=False)


@pytest.fixture
def names() -> list[str]:
    """Names of rule sets, and of their topics."""
    return ["one", "two"]


def copy_of(topic: str) -> str:
    return f'topics = "{topic}"\n[[rule]]\nto = "{topic}.copy"'


def has(client: Client, topic: str, count: int) -> Callable[[], bool]:
    def is_there() -> bool:
        try:
            return len(client.read(topic)) >= count
        except NotFound:
            return False

    return is_there


def test_a_topic_whose_groups_cannot_be_deleted_hinders_no_other(
    meddler: Meddler, impeded: Client, client: Client, names: list[str]
) -> None:
    """As one whose disk has failed."""
    first, second = names

    def refuse(call: Call) -> QuothError | bool:
        failed = call.operation == Operation.DELETE_GROUP and call.topic == first.encode()
        return error("storage_failed", "a test") if failed else False

    meddler.on_request = refuse
    client.publish(first, b"1")
    client.publish(second, b"1")
    client.group(first, "rules.one").info()
    for begin in (0, 0):
        add_rules(client, first, copy_of(first), begin)
    add_rules(client, second, copy_of(second), 0)
    with running(impeded):
        eventually(has(client, f"{first}.copy", 1), "the rules run on this topic, too")
        eventually(has(client, f"{second}.copy", 1), "the rules behind them run")


def test_the_state_of_rules_that_are_idle_is_kept(
    client: Client, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic of the states keeps the last ones only, and other rules write them all the time."""
    monkeypatch.setattr(rules_service, "SAVE_S", 0.0)
    monkeypatch.setattr(rules_service, "SAVE_BYTES", 500)
    idle, busy = names
    for name in names:
        client.publish(name, b"1")
        add_rules(client, name, copy_of(name), 0)

    def saves() -> int:
        return sum(message.key == idle.encode() for message in client.read(STATS_TOPIC, limit=10_000))

    def goes_on() -> bool:
        client.publish(busy, b"2")
        return saves() >= before + 3

    with running(client):
        totals = {"records": 1, "written": 1}
        eventually(
            lambda: saved_states(client).get(idle, {}).get("counts", {}).get("totals") == totals,
            "it is saved",
        )
        before = saves()
        eventually(goes_on, "it is saved again")
        assert saved_states(client)[idle]["counts"]["totals"] == totals


def test_counts_begin_anew_with_rules_that_were_removed(client: Client, names: list[str]) -> None:
    name = names[0]

    def totals() -> object:
        return saved_states(client).get(name, {}).get("counts", {}).get("totals")

    client.publish(name, b"1")
    add_rules(client, name, copy_of(name), 0)
    with running(client):
        eventually(lambda: totals() == {"records": 1, "written": 1}, "it is counted")
        remove_rules(client, name)
        eventually(lambda: totals() == {}, "it is removed")


def test_the_process_has_room_for_many_sockets() -> None:
    """A worker takes four."""
    with zmq.Context() as context:
        _raise_limits(context)
        sockets = [context.socket(zmq.PAIR) for _ in range(1_100)]
        for socket in sockets:
            socket.close(0)
