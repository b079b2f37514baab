"""Ranges of topics in the workers of Spark: each record once, the same for every attempt, or an error."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.model import BrokerModel
from kit.deadlines import eventually
from kit.spark.archives import Account, account, of_topic, publish
from quoth import Client, Gap
from quoth.message import PointerRange
from quoth.spark.connections import client as connection
from quoth.spark.source.range_reader import TopicRange, records_of
from quoth.spark.source.ranges import (
    foreach_partition,
    map_in_arrow,
    planned,
    topic_ranges,
    topic_ranges_frame,
)
from quothwire.errors import NotFound, RequestError


def range_writer(directory: Path) -> Callable[[TopicRange, Iterator[Any]], None]:
    """Make a function that writes the messages of each range to a file with the range's name."""

    def keep(one: TopicRange, found: Iterator[Any]) -> None:
        path = directory / f"{one.topic}-{one.after}-{one.until}"
        rows = [(message.pointer, message.key, message.value, dict(message.headers)) for message in found]
        path.with_suffix(".tmp").write_text(repr(rows))
        path.with_suffix(".tmp").rename(path)

    return keep


def kept(directory: Path) -> Account:
    """All that was kept."""
    return account(
        row for path in directory.iterdir() if path.suffix != ".tmp" for row in eval(path.read_text())
    )


def left_to_collect(one: TopicRange) -> int:
    """The objects that are looked at behind a task, once it has read its range."""
    assert list(records_of(one, "arrow", ("headers", "value", "key", "offset")))
    return len(gc.get_objects())


def test_ranges_have_similar_sizes_and_every_record_once(client: Client, topic: str) -> None:
    for name in ("a", "b"):
        publish(client, f"{topic}.{name}", [20] * 10)
    ranges = planned(client, f"{topic}.*", parts=6)
    for name in ("a", "b"):
        own, info = [one for one in ranges if one.topic == f"{topic}.{name}"], client.topic(f"{topic}.{name}")
        assert 2 <= len(own) <= 3
        assert all(before.until == after.after for before, after in pairwise(own))
        assert sum(one.records for one in own) == 200
        assert max(one.records for one in own) <= 2 * 200 / len(own) + 20
        assert own[-1].until == info.last
        assert {one.log for one in own} == {info.log}


def test_ranges_begin_and_end_at_the_given_bounds(client: Client, topic: str) -> None:
    publish(client, topic, [10, 10])
    pointers = [message.pointer for message in client.read(topic)]
    found = planned(client, topic, after=pointers[2], until=pointers[15], parts=1)
    assert [(one.after, one.until, one.records) for one in found] == [(pointers[2], pointers[15] - 1, 12)]
    assert planned(client, topic, after=pointers[-1], parts=1) == []


def test_unknown_topics_and_wrong_numbers_are_refused(client: Client) -> None:
    for name in ("no-such-topic", "no-such-*"):
        with pytest.raises(NotFound, match=r"unknown_topic.*no-such"):
            planned(client, name, parts=1)
    with pytest.raises(RequestError, match="0 parts"):
        planned(client, "no-such-*", parts=0)
    with pytest.raises(RequestError, match="decode='rows'"):
        foreach_partition(None, print, decode="rows")  # type: ignore[arg-type]


def test_worker_that_is_killed_costs_no_record_and_none_comes_twice(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [30] * 6)
    keep = range_writer(tmp_path)

    def die_once(one: TopicRange, messages: Iterator[Any]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and context.partitionId() == 1:
            next(messages)
            os.kill(os.getpid(), signal.SIGKILL)
        keep(one, messages)

    ranges = topic_ranges(spark, topic, url=broker.url, parts=3)
    assert list(map(len, ranges.glom().collect())) == [1, 1, 1]
    foreach_partition(ranges, die_once, decode="messages")
    assert kept(tmp_path) == of_topic(client, topic)


def test_worker_process_has_one_connection_for_all_its_tasks(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [5] * 8)
    url = broker.url

    def tell(one: TopicRange, batches: Iterator[Any]) -> None:
        list(batches)
        (tmp_path / f"{os.getpid()}-{id(connection(url))}-{one.after}").touch()

    for _ in range(2):
        foreach_partition(topic_ranges(spark, topic, url=url, parts=8), tell)
    connections = {path.name.rpartition("-")[0] for path in tmp_path.iterdir()}
    assert len(connections) == len({one.partition("-")[0] for one in connections}) <= 4


def test_topic_without_remaining_records_has_no_ranges_and_returns_the_next_offset(
    client: Client, topic: str
) -> None:
    first = client.publish(topic, [b"x"] * 5).first
    client.roll(topic)
    last = client.topic(topic).last
    client.trim(topic, last + 1)
    gaps: list[Gap] = []
    assert planned(client, topic, after=first, parts=2, on_gap=gaps.append) == []
    assert gaps == [Gap(topic, first, last + 1, -1, "trimmed")]


def test_records_removed_between_counting_and_dividing_are_reported() -> None:
    class Trimmed(BrokerModel):
        def split(self, topic: str, after: int, until: int, parts: int) -> list[PointerRange]:
            self.trim_batches(topic, 1)
            return super().split(topic, after, until, parts)

    broker = Trimmed()
    (first, *_, last), kept = broker.append("orders", 3), broker.append("orders", 2)
    gaps: list[Gap] = []
    (one,) = planned(broker, "orders", after=first, parts=1, on_gap=gaps.append)
    assert (one.until, one.records) == (kept[-1], 2)
    assert gaps == [Gap("orders", first, last + 1, -1, "trimmed")]


def test_frame_of_ranges_maps_each_range_once(
    spark: Any, client: Client, broker: BrokerProcess, topic: str
) -> None:
    publish(client, topic, [20] * 10)
    frame = topic_ranges_frame(spark, topic, url=broker.url, parts=4)
    assert frame.rdd.getNumPartitions() == frame.count() == 4
    assert {row["log"] for row in frame.collect()} == {f"{client.topic(topic).log:016x}"}

    def lengths(one: TopicRange, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            sizes = pa.compute.binary_length(batch.column("value")).cast(pa.int64())
            after = pa.array([one.after] * batch.num_rows)
            yield pa.RecordBatch.from_arrays(
                [after, batch.column("offset"), sizes], ["after", "offset", "bytes"]
            )

    kinds = "after long, offset long, bytes long"
    found = map_in_arrow(frame, lengths, kinds, columns=("value", "offset")).collect()
    expected = [(message.pointer, len(message.value)) for message in client.read(topic)]
    assert sorted((row["offset"], row["bytes"]) for row in found) == expected
    assert len({row["after"] for row in found}) == 4


def test_modules_are_not_looked_at_behind_each_task(
    spark: Any, client: Client, broker: BrokerProcess, topic: str
) -> None:
    """Spark, pyarrow and the client import 80,000 objects, which would take 45 ms."""
    publish(client, topic, [20] * 10)
    ranges = topic_ranges(spark, topic, url=broker.url, parts=4)
    eventually(lambda: max(ranges.map(left_to_collect).collect()) < 5_000, "tasks leave little to look at")
