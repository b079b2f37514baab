"""Ranges of topics in the workers of Spark: each record once, the same for every attempt, or an error."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
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

Connect = Callable[..., Client]
Rows = list[tuple[int, bytes | None, bytes, dict[str, bytes]]]


def rows_of_arrow(batches: Iterator[Any]) -> Rows:
    return [
        (row["offset"], row["key"], row["value"], {one["key"]: one["value"] for one in row["headers"] or ()})
        for batch in batches
        for row in batch.to_pylist()
    ]


def rows_of_batches(batches: Iterator[Any]) -> Rows:
    return rows_of_messages(message for batch in batches for message in batch)


def rows_of_messages(messages: Iterator[Any]) -> Rows:
    return [(one.pointer, one.key, one.value, dict(one.headers)) for one in messages]


SHAPES: dict[Any, Callable[[Iterator[Any]], Rows]] = {
    "arrow": rows_of_arrow,
    "batches": rows_of_batches,
    "messages": rows_of_messages,
}
COLUMNS = ("headers", "value", "key", "offset")


def range_writer(
    directory: Path, shape: Callable[[Iterator[Any]], Rows]
) -> Callable[[TopicRange, Iterator[Any]], None]:
    """Make a function that writes the records of each range to a file with the range's name."""

    def keep(one: TopicRange, found: Iterator[Any]) -> None:
        path = directory / f"{one.topic}-{one.after}-{one.until}"
        path.with_suffix(".tmp").write_text(repr(shape(found)))
        path.with_suffix(".tmp").rename(path)

    return keep


def kept(directory: Path) -> Account:
    """All that was kept."""
    return account(
        row for path in directory.iterdir() if path.suffix != ".tmp" for row in eval(path.read_text())
    )


def left_to_collect(one: TopicRange) -> int:
    """The objects that are looked at behind a task, once it has read its range."""
    assert rows_of_arrow(records_of(one, "arrow", COLUMNS))
    return len(gc.get_objects())


# -- planning -----------------------------------------------------------------------------------------------


def test_each_partition_has_one_range_and_all_have_every_record_once(
    spark: Any, client: Client, broker: BrokerProcess, topic: str
) -> None:
    for name in ("a", "b"):
        publish(client, f"{topic}.{name}", [20] * 10)
    found = topic_ranges(spark, f"{topic}.*", url=broker.url, parts=6).glom().collect()
    assert [len(part) for part in found] == [1] * len(found)
    ranges = [part[0] for part in found]
    for name in ("a", "b"):
        own = [one for one in ranges if one.topic == f"{topic}.{name}"]
        assert 2 <= len(own) <= 3
        assert all(before.until == after.after for before, after in pairwise(own))
        assert sum(one.records for one in own) == 200
        assert max(one.records for one in own) <= 2 * 200 / len(own) + 20
        assert own[-1].until == client.topic(own[0].topic).last
        assert {one.log for one in own} == {client.topic(own[0].topic).log}


def test_ranges_begin_and_end_where_they_are_told_to(
    spark: Any, client: Client, broker: BrokerProcess, topic: str
) -> None:
    publish(client, topic, [10, 10])
    pointers = [message.pointer for message in client.read(topic)]
    found = topic_ranges(
        spark, topic, url=broker.url, after=pointers[2], until=pointers[15], parts=1
    ).collect()
    assert [(one.after, one.until, one.records) for one in found] == [(pointers[2], pointers[15] - 1, 12)]
    assert topic_ranges(spark, topic, url=broker.url, after=pointers[-1]).collect() == []


def test_topics_that_do_not_exist_and_wrong_numbers_are_told(spark: Any, broker: BrokerProcess) -> None:
    with pytest.raises(NotFound, match="unknown_topic"):
        topic_ranges(spark, "no-such-topic", url=broker.url)
    with pytest.raises(NotFound, match="no-such"):
        topic_ranges(spark, "no-such-*", url=broker.url)
    with pytest.raises(RequestError, match="0 parts"):
        topic_ranges(spark, "no-such-*", url=broker.url, parts=0)
    with pytest.raises(RequestError, match="decode='rows'"):
        foreach_partition(None, print, decode="rows")  # type: ignore[arg-type]


# -- working on them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode", SHAPES)
def test_workers_get_every_record_as_a_direct_read_gives_it(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path, decode: Any
) -> None:
    publish(client, topic, [50, 1, 30, 7, 99, 3])
    ranges = topic_ranges(spark, topic, url=broker.url, parts=4)
    foreach_partition(ranges, range_writer(tmp_path, SHAPES[decode]), decode=decode, columns=COLUMNS)
    assert kept(tmp_path) == of_topic(client, topic)


def test_part_of_a_batch_is_read_in_every_shape(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [50])
    pointers = [message.pointer for message in client.read(topic)]
    ranges = topic_ranges(spark, topic, url=broker.url, after=pointers[9], until=pointers[40])
    for decode, shape in SHAPES.items():
        (tmp_path / decode).mkdir()
        foreach_partition(ranges, range_writer(tmp_path / decode, shape), decode=decode, columns=COLUMNS)
    expected = account((one.pointer, one.key, one.value, one.headers) for one in client.read(topic)[10:40])
    assert {decode: kept(tmp_path / decode) for decode in SHAPES} == dict.fromkeys(SHAPES, expected)


def test_task_that_failed_gets_the_same_range_with_the_same_records(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [30] * 6)

    def fail_twice(one: TopicRange, batches: Iterator[Any]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        rows = [row for batch in batches for row in batch.to_pylist()]
        said = {"range": one, "rows": [row["offset"] for row in rows]}
        (tmp_path / f"{one.after}.{context.attemptNumber()}").write_text(json.dumps(said))
        if context.attemptNumber() < 2:
            raise ValueError("not yet")

    foreach_partition(topic_ranges(spark, topic, url=broker.url, parts=3), fail_twice)
    for after in {path.stem for path in tmp_path.iterdir()}:
        attempts = [(tmp_path / f"{after}.{number}").read_text() for number in range(3)]
        assert len(set(attempts)) == 1
    assert len(list(tmp_path.iterdir())) == 9


def test_worker_that_is_killed_costs_no_record_and_none_comes_twice(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [30] * 6)
    keep = range_writer(tmp_path, rows_of_arrow)

    def die_once(one: TopicRange, batches: Iterator[Any]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and context.partitionId() == 1:
            next(batches)
            os.kill(os.getpid(), signal.SIGKILL)
        keep(one, batches)

    foreach_partition(topic_ranges(spark, topic, url=broker.url, parts=3), die_once, columns=COLUMNS)
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


def test_record_that_is_not_there_any_more_fails_the_task(
    spark: Any, client: Client, broker: BrokerProcess, topic: str
) -> None:
    publish(client, topic, [5])
    client.roll(topic)
    publish(client, topic, [5])
    ranges = topic_ranges(spark, topic, url=broker.url, parts=1)
    client.trim(topic, client.topic(topic).last - 4)
    with pytest.raises(Exception, match=r"unknown_record.*5 records.*plan anew"):
        foreach_partition(ranges, lambda _, found: list(found))
    [planned] = ranges.collect()
    for decode in SHAPES:
        with pytest.raises(NotFound, match=r"unknown_record.*5 records.*plan anew"):
            list(records_of(planned, decode))


def test_topic_of_which_all_is_gone_has_no_ranges_and_tells_where_it_goes_on(
    client: Client, topic: str
) -> None:
    first = client.publish(topic, [b"x"] * 5).first
    client.roll(topic)
    last = client.topic(topic).last
    client.trim(topic, last + 1)
    gaps: list[Gap] = []
    assert planned(client, topic, after=first, parts=2, on_gap=gaps.append) == []
    assert gaps == [Gap(topic, first, last + 1, -1, "trimmed")]


def test_what_goes_between_counting_and_dividing_is_told() -> None:
    class Trimmed(BrokerModel):
        def split(self, topic: str, after: int, until: int, parts: int) -> list[PointerRange]:
            self.trim(topic, 1)
            return super().split(topic, after, until, parts)

    broker = Trimmed()
    (first, *_), kept = broker.append("orders", 3), broker.append("orders", 2)
    gaps: list[Gap] = []
    (one,) = planned(broker, "orders", after=first, parts=1, on_gap=gaps.append)
    assert (one.until, one.records) == (kept[-1], 2)
    assert gaps == [Gap("orders", first, kept[0], -1, "trimmed")]


def test_records_in_front_of_a_range_may_go(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [5])
    middle = client.topic(topic).last
    client.roll(topic)
    publish(client, topic, [7])
    ranges = topic_ranges(spark, topic, url=broker.url, after=middle, parts=1)
    client.trim(topic, middle + 1)
    foreach_partition(ranges, range_writer(tmp_path, rows_of_arrow), columns=COLUMNS)
    assert kept(tmp_path).records == 7


def test_topic_that_was_made_anew_meanwhile_fails_the_task(
    spark: Any, client: Client, broker: BrokerProcess, topic: str
) -> None:
    publish(client, topic, [5])
    ranges = topic_ranges(spark, topic, url=broker.url)
    client.delete_topic(topic)
    publish(client, topic, [5])
    with pytest.raises(Exception, match=r"unknown_topic|unknown_record"):
        foreach_partition(ranges, lambda _, found: list(found))


def test_broker_that_is_killed_and_started_again_meanwhile_costs_nothing(
    spark: Any, start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    broker = start_broker()
    with connect(broker) as client:
        for number in range(60):
            client.publish("orders", [b"%d %d %s" % (number, row, b"x" * 200) for row in range(500)])
        expected = of_topic(client, "orders")
        ranges = topic_ranges(spark, "orders", url=broker.url, parts=2)
    kept_in, begun = tmp_path / "kept", tmp_path / "begun"
    kept_in.mkdir()
    keep = range_writer(kept_in, rows_of_arrow)

    def begin(one: TopicRange, batches: Iterator[Any]) -> None:
        def told() -> Iterator[Any]:
            for batch in batches:
                begun.touch()
                yield batch

        keep(one, told())

    def restart() -> None:
        eventually(begun.exists, "a task has begun")
        broker.kill()
        broker.restart()

    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        foreach_partition(ranges, begin, columns=COLUMNS)
    finally:
        restarting.join()
    assert kept(kept_in) == expected


# -- over Arrow alone ---------------------------------------------------------------------------------------


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

    found = map_in_arrow(frame, lengths, "after long, offset long, bytes long").collect()
    expected = [(message.pointer, len(message.value)) for message in client.read(topic)]
    assert sorted((row["offset"], row["bytes"]) for row in found) == expected
    assert len({row["after"] for row in found}) == 4


# -- workers ------------------------------------------------------------------------------------------------


def test_modules_are_not_looked_at_behind_each_task(
    spark: Any, client: Client, broker: BrokerProcess, topic: str
) -> None:
    """Spark, pyarrow and the client import 80,000 objects, which would take 45 ms."""
    publish(client, topic, [20] * 10)
    ranges = topic_ranges(spark, topic, url=broker.url, parts=4)
    eventually(lambda: max(ranges.map(left_to_collect).collect()) < 5_000, "tasks leave little to look at")
