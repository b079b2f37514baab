"""Reads of synced records alone, by each way to read, in both clients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.client.records import Connect
from quoth import Client, Gap
from quothwire import batch as wire

LEVELS = (None, "written")
"""The records that a topic of the level ``written`` shows to all."""


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that syncs when a request asks for it."""
    return start_broker(sync_interval=600.0, worker_timeout=600.0)


@pytest.fixture
def client(broker: BrokerProcess, connect: Connect) -> Client:
    return connect(broker)


def each_way(client: Client, **named: Any) -> Iterator[list[bytes]]:
    """The values of a topic, as each call returns them."""
    yield [message.value for message in client.read("t", **named)]
    yield [message.value for batch in client.batches("t", **named) for message in batch]
    yield [value for one in client.stored("t", **named) for value in wire.decode(one.data, one.log).values]


def test_every_call_reads_up_to_the_end_of_its_level(client: Client) -> None:
    client.publish("t", b"1", durability="synced")
    client.publish("t", [b"2", b"3"])
    for level in LEVELS:
        assert [*each_way(client, durability=level)] == [[b"1", b"2", b"3"]] * 3
    assert [*each_way(client, durability="synced")] == [[b"1"]] * 3
    client.publish("t", b"4", durability="synced")
    assert [*each_way(client, durability="synced")] == [[b"1", b"2", b"3", b"4"]] * 3


def test_pages_of_two_levels_do_not_take_each_others_records(client: Client) -> None:
    """A read goes on with what was fetched ahead for one that ended where it begins."""
    client.publish("t", [b"1", b"2"], durability="synced")
    for value in (b"3", b"4", b"5"):
        client.publish("t", value)
    plain = client.read("t", limit=2)
    client.read("t", after=plain[-1].pointer, limit=1)
    assert [*client.read("t", after=plain[-1].pointer, limit=1, durability="synced")] == []
    page = client.read("t", limit=2, durability="synced")
    assert [message.value for message in page] == [b"1", b"2"]
    assert [message.value for message in client.read("t", after=page[-1].pointer, limit=2)] == [b"3", b"4"]


def test_cursor_ahead_of_the_fsync_is_no_gap(client: Client) -> None:
    """As of one that read without a level, or of a publish that was acknowledged as written."""
    gaps: list[Gap] = []
    written = client.publish("t", [b"1", b"2"])
    assert [*client.read("t", after=written.last, durability="synced", on_gap=gaps.append)] == []
    tail = client.tail("t", after=written.last, durability="synced", on_gap=gaps.append)
    client.publish("t", b"3", durability="synced")
    assert next(tail).value == b"3"
    assert gaps == []


def test_tail_gets_each_record_once_it_is_synced(client: Client) -> None:
    """Such a tail begins at the end of what was synced, so that nothing is left out."""
    client.publish("t", b"1", durability="synced")
    client.publish("t", b"2")
    tail = client.tail("t", durability="synced")
    client.publish("t", b"3", durability="synced")
    assert [message.value for message in islice(tail, 2)] == [b"2", b"3"]


def test_level_that_does_not_exist_is_refused(client: Client) -> None:
    wrong: Any = "strict"
    for call in (client.read, client.batches, client.stored, client.tail):
        with refused("bad_request"):
            call("t", durability=wrong)
