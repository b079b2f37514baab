"""The reader of a range: returned and lost records are together all that was planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.disk.damage import flip, stored_batches, with_headers
from kit.spark.archives import publish
from quoth import Ack, Client
from quoth.spark.source.range_reader import DataLoss, RangeReader, TopicRange, into, records_of
from quothwire.batch import HEADER_BYTES
from quothwire.errors import Damaged, NotFound, QuothError
from quothwire.headers import encode_headers

COLUMNS = ("headers", "value", "key", "offset")
Pointers = list[int]
SHAPES: dict[str, Callable[[RangeReader], Pointers]] = {
    "arrow": lambda reader: [row for one in reader.arrow(["offset"]) for row in one.column(0).to_pylist()],
    "arrow with headers": lambda reader: [
        row for one in reader.arrow(["headers", "offset"]) for row in one.column(1).to_pylist()
    ],
    "batches": lambda reader: [row for one in reader.batches() for row in range(one.first, one.last + 1)],
    "messages": lambda reader: [one.pointer for one in reader.messages()],
}


def range_of(url: str, client: Client, topic: str, after: int, until: int) -> TopicRange:
    """Plan a range of the present records."""
    found = client.count(topic, after, until)
    return TopicRange(url, topic, found.log, after, until, found.records, found.bytes)


def read(one: TopicRange, shape: str) -> tuple[Pointers, list[DataLoss]]:
    """Read a range; returns its pointers and its losses."""
    losses: list[DataLoss] = []
    return SHAPES[shape](RangeReader(one, losses.append)), losses


def pointers(ack: Ack, begin: int = 0, end: int | None = None) -> Pointers:
    """The pointers of some records of one publish."""
    return list(range(ack.first, ack.last + 1))[begin:end]


def test_every_shape_has_the_records_of_a_direct_read(client: Client, topic: str) -> None:
    """Also of the part of a batch with which a range begins or ends."""
    publish(client, topic, [50, 1, 30, 7, 99, 3])
    read = client.read(topic, limit=1_000)
    one = range_of(client.url, client, topic, read[9].pointer, read[179].pointer)
    rows = [row for table in records_of(one, "arrow", COLUMNS) for row in table.to_pylist()]
    headers = [{pair["key"]: pair["value"] for pair in row["headers"] or ()} for row in rows]
    found = [(row["offset"], row["value"], row["key"], own) for row, own in zip(rows, headers, strict=True)]
    assert found == [message[1:] for message in read[10:180]]
    assert list(records_of(one, "messages")) == read[10:180]
    assert [message for batch in records_of(one, "batches") for message in batch] == read[10:180]


def test_damaged_records_are_lost_only_within_the_range(
    own_broker: BrokerProcess, own_client: Client, topic: str
) -> None:
    first, second, third = (own_client.publish(topic, [b"%d" % row * 20 for row in range(10)]) for _ in "abc")
    own_client.roll(topic)
    bounds = {
        "all": (0, third.last),
        "its head": (first.first + 4, second.first + 3),
        "its tail": (second.first + 2, third.first + 5),
        "nothing else": (second.first + 2, second.first + 6),
    }
    ranges = {name: range_of(own_broker.url, own_client, topic, *one) for name, one in bounds.items()}
    log = own_client.topic(topic).log
    own_broker.terminate()
    damaged = stored_batches(own_broker.topics_directory, log)[1]
    flip(damaged.path, damaged.start + HEADER_BYTES + 200)
    own_broker.restart()
    expected = {
        "all": (pointers(first) + pointers(third), (first.last, second.last + 1, 10)),
        "its head": (pointers(first, 5), (first.last, second.first + 4, 4)),
        "its tail": (pointers(third, 0, 6), (second.first + 2, second.last + 1, 7)),
        "nothing else": ([], (second.first + 2, second.first + 7, 4)),
    }
    for shape in SHAPES:
        for name, (left, lost) in expected.items():
            assert read(ranges[name], shape) == (left, [DataLoss(topic, *lost, "damaged")]), (shape, name)
        with pytest.raises(Damaged, match="10 records after"):
            SHAPES[shape](RangeReader(ranges["all"]))


def test_records_removed_by_retention_are_lost_only_within_the_range(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    first = client.publish(topic, [b"x"] * 10)
    client.roll(topic)
    second = client.publish(topic, [b"y"] * 5)
    begins = (0, first.first + 2, first.last)
    ranges = [range_of(broker.url, client, topic, after, second.last) for after in begins]
    client.trim(topic, second.first)
    for shape in SHAPES:
        assert [read(one, shape) for one in ranges] == [
            (pointers(second), [DataLoss(topic, 0, second.last + 1, 10, "trimmed")]),
            (pointers(second), [DataLoss(topic, first.first + 2, second.first, 7, "trimmed")]),
            (pointers(second), []),
        ], shape
        with pytest.raises(NotFound, match=r"unknown_record.*7 records.*plan anew"):
            SHAPES[shape](RangeReader(ranges[1]))


@pytest.mark.parametrize("fate", ["deleted", "made anew", "made anew and filled"])
def test_deleted_topic_is_reported_as_deleted(
    client: Client, broker: BrokerProcess, topic: str, fate: str
) -> None:
    ack = client.publish(topic, [b"x"] * 10)
    one = range_of(broker.url, client, topic, ack.first, ack.last + 10**12)
    client.delete_topic(topic)
    if fate != "deleted":
        client.create_topic(topic)
    if "filled" in fate:
        client.publish(topic, [b"y"] * 3)
    reason: Any = "deleted" if fate == "deleted" else "recreated"
    for shape in SHAPES:
        assert read(one, shape) == ([], [DataLoss(topic, one.after, one.until + 1, 9, reason)]), shape
        losses: list[DataLoss] = []
        with pytest.raises(NotFound, match=r"unknown_topic.*9 records"):
            SHAPES[shape](RangeReader(one, into(losses)))
        assert losses == []


def test_malformed_headers_cost_no_record(client: Client, broker: BrokerProcess, topic: str) -> None:
    ack = client.publish(topic, [b"a", b"b", b"c"], headers=[{}, {"bad": b""}, {}])
    good = encode_headers({"bad": b""})
    with_headers(broker.topics_directory, client.topic(topic).log, good, b"\xc1" * len(good))
    one = range_of(broker.url, client, topic, 0, ack.last)
    for shape in SHAPES:
        assert read(one, shape) == (pointers(ack), []), shape


def test_absent_broker_is_no_loss(own_broker: BrokerProcess, own_client: Client, topic: str) -> None:
    ack = own_client.publish(topic, [b"x"] * 3)
    one = range_of(own_broker.url, own_client, topic, 0, ack.last)
    own_broker.terminate()
    losses: list[DataLoss] = []
    with pytest.raises(QuothError, match=r"disconnected|timed_out"):
        list(RangeReader(one, losses.append, 0.3).batches())
    assert losses == []
    own_broker.restart()
    assert [found.pointer for found in records_of(one, "messages")] == pointers(ack)
