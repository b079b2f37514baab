"""A client of today and a broker of tomorrow: what version 1 may still get, and another version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context, refused
from kit.broker.proxies import Meddler
from kit.client.records import Connect
from quothwire.errors import BrokerFailure, QuothError
from quothwire.protocol.binary_codec import Call


class NewerBroker(Meddler):
    """Stands in front of a broker and lets it answer in another version."""

    version = 1

    def _take_reply(self, frames: list[bytes]) -> None:
        client, empty, header, *rest = frames
        self._front.send_multipart([client, empty, header[:2] + bytes([self.version]) + header[3:], *rest])


@pytest.fixture
def newer(context: Context, broker: BrokerProcess) -> Iterator[NewerBroker]:
    """One in front of the broker of this file."""
    with NewerBroker(context, broker.url) as newer:
        yield newer


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
