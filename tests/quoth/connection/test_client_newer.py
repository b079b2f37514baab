"""A client of today and a broker of tomorrow: what version 1 may still get, and another version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context, refused
from kit.broker.proxies import Meddler
from kit.client.records import Connect
from quothwire.errors import BrokerFailure, QuothError
from quothwire.protocol.binary_codec import Call
from quothwire.protocol.messages import Operation

MORE: dict[str, Any] = {
    "later": 7,
    "later_text": "é" * 300,
    "later_bytes": b"\xff",
    "later_nothing": None,
    "later_lists": [[1, [2]], {"map": [True]}],
}
"""Fields that a later broker may send, in all shapes that are allowed."""


class NewerBroker(Meddler):
    """Stands in front of a broker and says more than that does, or says it in another version."""

    version = 1

    def _take_reply(self, frames: list[bytes]) -> None:
        client, empty, header, arguments, *payload = frames
        more = msgpack.packb({**msgpack.unpackb(arguments), **MORE})
        header = header[:2] + bytes([self.version]) + header[3:]
        self._front.send_multipart([client, empty, header, more, *payload])


@pytest.fixture
def newer(context: Context, broker: BrokerProcess) -> Iterator[NewerBroker]:
    """One in front of the broker of this file."""
    with NewerBroker(context, broker.url) as newer:
        yield newer


def test_fields_that_a_later_broker_adds_to_its_replies_are_passed_over(
    newer: NewerBroker, connect: Connect, topic: str
) -> None:
    client = connect(newer)
    client.create_topic(topic)
    ack = client.publish(topic, [b"one", b"two"], key=b"k", headers={"a": b"1"})
    messages = [message for batch in client.batches(topic) for message in batch]
    assert [(one.pointer, one.value) for one in messages] == [(ack.first, b"one"), (ack.last, b"two")]
    transaction = client.transaction(topic, "loader", 1)
    with transaction.part(0) as part:
        part.write([b"staged"])
        staged = part.finish()
    assert transaction.publish([staged]).count == 1
    assert transaction.status().state == "published"
    assert transaction.abort().state == "published"
    assert client.count(topic).records == 3
    assert client.advance(topic, max_records=1).records == 1
    assert client.split(topic, 0, ack.last, 1)[0].records == 2
    assert topic in client.topics()
    assert client.update_topic(topic, max_bytes=2**30).settings["max_bytes"] == 2**30
    assert client.roll(topic).count == client.topic(topic).count == 3
    assert client.trim(topic, before=ack.first).records == 0
    assert client.status().topics >= 1
    assert client.ping() > 0
    assert client.delete_topic(topic).records == 3
    assert client.hello().versions == [1]
    assert {call.operation for call in newer.requests} == set(Operation)


def test_answer_in_another_version_ends_the_call_at_once(
    newer: NewerBroker, connect: Connect, topic: str
) -> None:
    """Not at the end of the timeout, after many copies."""
    client = connect(newer, timeout=3_600)
    newer.version = 2
    for ask in (client.ping, lambda: client.publish(topic, b"v"), lambda: connect(newer, timeout=3_600)):
        before = len(newer.requests)
        with refused("unsupported_version"):
            ask()
        assert len(newer.requests) == before + 1


def test_code_that_is_not_known_here_is_told_as_it_came_and_not_tried_again(
    meddler: Meddler, connect: Connect, topic: str
) -> None:
    def refuse(_call: Call) -> QuothError:
        return BrokerFailure("tenant_over_quota", "no more today", "ask for more")

    client = connect(meddler, timeout=3_600)
    meddler.on_request = refuse
    before = len(meddler.requests)
    with pytest.raises(BrokerFailure) as told:
        client.publish(topic, b"v")
    assert str(told.value) == "tenant_over_quota: no more today (ask for more)"
    assert (told.value.code, told.value.retryable) == ("tenant_over_quota", False)
    assert len(meddler.requests) == before + 1
