"""Reading with Spark while workers and the broker die: each record once, or an error."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.disk.damage import flip, stored_batches
from kit.spark.queries import Queries
from quoth import Client
from quoth.spark import QuothDataSource
from quoth.spark.options import parse
from quoth.spark.source.source import BatchReader, StreamReader, TopicReader

Spark = Any
RECORDS = 60_000
"""Three tables of a task."""


class Mortal(QuothDataSource):
    """Topics whose reading is killed at its first try, in the middle of what a task reads."""

    @classmethod
    def name(cls) -> str:
        return "mortal"

    def reader(self, schema: StructType) -> DataSourceReader:
        return MortalBatchReader(parse(self.options, stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return MortalStreamReader(parse(self.options, stream=True), schema)


class MortalReader(TopicReader):
    """Dies with its process behind the first table of the first attempt."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for table in super().read(partition):
            yield table
            task = TaskContext.get()
            if task is not None and task.attemptNumber() == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class MortalBatchReader(MortalReader, BatchReader):
    """Of a table."""


class MortalStreamReader(MortalReader, StreamReader):
    """Of a stream."""


def fill(client: Client, topic: str) -> None:
    """Many records."""
    with client.producer(topic, batch=5_000) as producer:
        for number in range(RECORDS):
            producer.send(b"%d" % number)


def offsets(client: Client, topic: str) -> list[int]:
    """The pointers of all records."""
    return [pointer for one in client.batches(topic) for pointer in range(one.first, one.last + 1)]


@pytest.mark.usefixtures("by_value")
def test_a_worker_that_is_killed_in_a_task_costs_no_record_and_doubles_none(
    spark: Spark, broker: BrokerProcess, client: Client, topic: str, queries: Queries
) -> None:
    spark.dataSource.register(Mortal)
    fill(client, topic)
    options = {"url": broker.url, "subscribe": topic, "minPartitions": "2"}
    table = spark.read.format("mortal").options(**options).load().select("offset")
    assert sorted(row.offset for row in table.collect()) == offsets(client, topic)
    stream = spark.readStream.format("mortal").options(**options, startingOffsets="earliest").load()
    queries.run(stream.select("offset", "topic"))
    assert sorted(row.offset for row in queries.rows) == offsets(client, topic)


def test_a_broker_that_is_killed_and_comes_back_costs_no_record(
    spark: Spark, start_broker: StartBroker, connect: Any, topic: str, queries: Queries
) -> None:
    broker = start_broker()
    client = connect(broker)
    fill(client, topic)
    expected = offsets(client, topic)
    options = {"url": broker.url, "subscribe": topic, "minPartitions": "2"}
    returning: list[threading.Thread] = []

    def kill(_: int = 0) -> None:
        broker.kill()
        returning.append(threading.Thread(target=broker.restart))
        returning[-1].start()

    queries.on_batch = kill
    stream = spark.readStream.format("quoth").options(**options, startingOffsets="earliest")
    queries.run(stream.option("maxOffsetsPerTrigger", str(RECORDS // 3)).load().select("offset", "topic"))
    for thread in returning:
        thread.join()
    assert len(queries.batches) == 3
    assert sorted(row.offset for row in queries.rows) == expected
    table = spark.read.format("quoth").options(**options).load().select("offset")
    assert table.count() == RECORDS  # planned
    kill()
    assert sorted(row.offset for row in table.collect()) == expected
    returning[-1].join()


def test_a_broker_that_stays_away_fails_the_query_and_the_checkpoint_stays_good(
    spark: Spark, start_broker: StartBroker, connect: Any, topic: str, queries: Queries
) -> None:
    broker = start_broker()
    connect(broker).publish(topic, [b"x"] * 10)
    options = {"url": broker.url, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("quoth").options(**options).load()
    queries.run(stream)
    broker.terminate()
    with pytest.raises(Exception, match=r"disconnected|timed_out"):
        queries.run(spark.readStream.format("quoth").options(**options, timeout="300ms").load())
    broker.restart()
    connect(broker).publish(topic, [b"y"] * 10)
    queries.run(stream)
    assert queries.values == [b"x"] * 10 + [b"y"] * 10


def test_damaged_bytes_are_an_error_or_told_in_a_topic_and_all_others_are_read(
    spark: Spark, start_broker: StartBroker, connect: Any, topic: str
) -> None:
    broker = start_broker()
    client = connect(broker)
    for number in range(3):
        client.publish(topic, [b"%d" % number] * 5)
        client.roll(topic)
    broken = stored_batches(broker.topics_directory, client.topic(topic).log)[1]
    flip(broken.path, broken.end - 9)
    options = {"url": broker.url, "subscribe": topic, "minPartitions": "1"}
    strict = spark.read.format("quoth").options(**options)
    with pytest.raises(Exception, match=r"damaged: topic .*: 5 records after"):
        strict.load().count()
    lenient = strict.options(failOnDataLoss="false", lossTopic=f"{topic}-losses").load()
    assert sorted(bytes(row.value) for row in lenient.collect()) == [b"0"] * 5 + [b"2"] * 5
    (told,) = [json.loads(one.value) for one in client.read(f"{topic}-losses")]
    assert (told["records"], told["reason"]) == (5, "damaged")
