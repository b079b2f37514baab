"""A cursor above the newest record, by a mistake or since a topic was restored: told once, and at once."""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually
from quoth import Client, Cursor, Gap, Reading
from quothwire.pointer import POINTER_MAX

QUICK_S = 20.0
"""Two thirds of what a broker keeps a fetch for that finds nothing."""


@pytest.fixture
def last(client: Client, topic: str) -> int:
    """The newest pointer of a topic with three records."""
    return client.publish(topic, [b"a", b"b", b"c"]).last


def ahead(topic: str, newest: int, cursor: int, ordinal: int = 3) -> Gap:
    """The gap that is reported."""
    return Gap(topic, newest, cursor + 1, 0, "ahead", ordinal)


def listen(client: Client, topic: str, how: str, after: int, gaps: list[Gap]) -> None:
    """Begin to read in one of several ways, as far as it goes without a record."""
    if how == "read":
        assert len(client.read(topic, after=after, on_gap=gaps.append)) == 0
    elif how == "batches":
        assert list(client.batches(topic, after=after, on_gap=gaps.append)) == []
    else:
        with client.read_many(topic, after=after, ordered=True, on_gap=gaps.append) as reading:
            assert list(reading) == []


@pytest.mark.parametrize("how", ["read", "batches", "read_many"])
def test_a_cursor_above_the_newest_record_is_reported(
    client: Client, topic: str, last: int, how: str
) -> None:
    gaps: list[Gap] = []
    listen(client, topic, how, last, gaps)
    assert gaps == []
    listen(client, topic, how, last + 7, gaps)
    assert gaps == [ahead(topic, last, last + 7)]


class Stop(Exception):
    """Raised by an application that wants no record behind such a cursor."""


@pytest.mark.timeout(QUICK_S)
@pytest.mark.parametrize("how", ["tail", "tail_many", "merge"])
def test_a_follower_gets_the_gap_before_it_waits(client: Client, topic: str, last: int, how: str) -> None:
    gaps: list[Gap] = []

    def stop(gap: Gap) -> None:
        gaps.append(gap)
        raise Stop

    if how == "tail":
        found: Any = client.tail(topic, after=POINTER_MAX, on_gap=stop)
    else:
        found = client.tail_many(topic, after=POINTER_MAX, ordered=how == "merge", on_gap=stop)
    with closing(found), pytest.raises(Stop):
        next(found)
    assert gaps == [ahead(topic, last, POINTER_MAX)]


def test_it_is_reported_once_and_reading_goes_on_above_it(client: Client, topic: str, last: int) -> None:
    gaps: list[Gap] = []
    tail = client.tail(topic, after=last + 1_000, on_gap=gaps.append)  # a millisecond
    client.publish(topic, [b"d", b"e"])
    assert [message.value for message in islice(tail, 2)] == [b"d", b"e"]
    assert gaps in ([], [ahead(topic, last, last + 1_000)])
    ack = client.publish(topic, b"f")
    assert next(tail).pointer == ack.last
    assert len(gaps) <= 1


def test_a_time_may_lie_above_the_newest_record(client: Client, topic: str, last: int) -> None:
    gaps: list[Gap] = []
    assert len(client.read(topic, since="2100-01-01", on_gap=gaps.append)) == 0
    with client.read_many(topic, since="2100-01-01", on_gap=gaps.append) as reading:
        assert list(reading) == []
    assert (last > 0, gaps) == (True, [])


def test_it_is_logged_unless_the_application_listens(
    client: Client, topic: str, last: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "quoth"):
        client.read(topic, after=last + 1)
    assert [record.getMessage() for record in caplog.records] == [
        f"the cursor lies above the newest record topic={topic!r} newest={last} next={last + 2}"
    ]


def test_a_consumer_of_a_topic_that_was_put_back_gets_an_error(
    own_broker: BrokerProcess, own_client: Client, tmp_path: Path
) -> None:
    """Its records behind those that were put back are gone, though it has had them."""
    first = own_client.publish("orders", [b"a", b"b"], durability="synced")
    own_broker.terminate()
    shutil.copytree(own_broker.directory, tmp_path / "copy")
    own_broker.restart()
    second = own_client.publish("orders", b"c")
    with Cursor(tmp_path / "orders.cursor") as cursor:
        consume(own_client, cursor, 3)
    put_back(own_broker, tmp_path / "copy")
    gaps: list[Gap] = []
    with (
        Cursor(tmp_path / "orders.cursor") as cursor,
        own_client.read_many("orders", cursor=cursor, on_gap=gaps.append) as reading,
    ):
        assert list(reading) == []
    assert gaps == [ahead("orders", first.last, second.last, 2)]


def consume(client: Client, cursor: Cursor, number: int) -> None:
    """Take some records of a topic from its beginning."""
    reading: Reading
    with client.read_many("orders", cursor=cursor) as reading:
        for message in islice(reading, number):
            cursor.advance(message)


def put_back(broker: BrokerProcess, copy: Path) -> None:
    """Let a broker hold what it held before."""
    broker.terminate()
    shutil.rmtree(broker.directory)
    shutil.copytree(copy, broker.directory)
    broker.restart()
    eventually(lambda: broker.exit_status is None, "it runs")
