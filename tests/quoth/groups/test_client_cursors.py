"""Named cursors: positions that the broker keeps for readers."""

from __future__ import annotations

from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.client.records import numbered
from quoth import Client


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    client.publish(topic, numbered(10))
    return topic


def test_a_cursor_moves_forward_and_never_back(client: Client, filled: str) -> None:
    pointers = [message.pointer for message in client.read(filled)]
    cursor = client.cursor(filled, "report")
    assert cursor.pointer() == 0
    assert cursor.lag().records == 10
    assert cursor.lag().seconds > 0
    assert cursor.commit(pointers[4]) == pointers[4]
    assert cursor.commit(pointers[2]) == pointers[4]
    other = client.cursor(filled, "report")
    assert other.pointer() == pointers[4]
    assert [message.value for message in client.read(filled, after=other.pointer())] == numbered(5, 5)
    assert other.commit(pointers[9]) == pointers[9]
    assert cursor.lag() == (0, 0.0, 0)
    assert cursor.commit(pointers[9] + 10**9) == pointers[9]  # no further than the topic
    assert [one.group for one in client.groups(filled)] == ["report"]


def test_a_cursor_begins_where_its_start_says(client: Client, filled: str) -> None:
    third = client.read(filled)[2]
    starts: dict[str, tuple[Any, int]] = {
        "end": ("end", client.topic(filled).last),
        "pointer": (third.pointer, third.pointer),
        "time": (third.time, third.pointer - 1),
    }
    for name, (start, expected) in starts.items():
        assert client.cursor(filled, name, start=start).pointer() == expected
        assert client.cursor(filled, name).pointer() == expected


def test_commits_of_before_a_seek_have_no_effect(client: Client, filled: str) -> None:
    pointers = [message.pointer for message in client.read(filled)]
    cursor, other = client.cursor(filled, "report"), client.cursor(filled, "report")
    cursor.commit(pointers[4])
    other.commit(pointers[5])
    assert cursor.seek("begin") == 0
    assert cursor.commit(pointers[1]) == pointers[1]
    with refused("lease_lost"):
        other.commit(pointers[6])
    assert other.pointer() == pointers[1]
    assert other.commit(pointers[6]) == pointers[6]


def test_a_cursor_is_no_group_of_consumers(client: Client, filled: str) -> None:
    cursor = client.cursor(filled, "report")
    assert cursor.info().settings["mode"] == "cursor"
    with refused("bad_request"):
        client.group(filled, "report").fetch()
    with refused("group_exists"):
        client.group(filled, "report", mode="at_least_once").info()
    client.group(filled, "consumers").info()
    with refused("group_exists"):
        client.cursor(filled, "consumers").pointer()
    with refused("unknown_group"):
        client.cursor(filled, "other", create=False).pointer()
    with refused("bad_group"):
        client.cursor(filled, "a/b")
    with refused("bad_pointer"):
        cursor.commit(-1)
    cursor.delete()
    with refused("unknown_group"):
        cursor.commit(1)


def test_commits_survive_a_broker_that_is_killed(
    own_client: Client, own_broker: BrokerProcess, topic: str
) -> None:
    ack = own_client.publish(topic, numbered(10))
    cursor = own_client.cursor(topic, "report")
    assert cursor.commit(ack.first) == ack.first
    own_broker.kill()
    own_broker.restart()
    assert cursor.pointer() == ack.first
    assert cursor.lag().records == 9
