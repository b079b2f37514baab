"""Reading with Spark while the broker dies: each record once, or an error."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.spark.sparks import Queries
from quoth import Client

Spark = Any
RECORDS = 60_000
"""Three tables of a task."""


def fill(client: Client, topic: str) -> None:
    """Many records."""
    with client.producer(topic, batch=5_000) as producer:
        for number in range(RECORDS):
            producer.send(b"%d" % number)


def offsets(client: Client, topic: str) -> list[int]:
    """The pointers of all records."""
    return [pointer for one in client.batches(topic) for pointer in range(one.first, one.last + 1)]


def test_a_broker_that_is_killed_and_comes_back_costs_no_record(
    spark: Spark, own_broker: BrokerProcess, own_client: Client, topic: str, queries: Queries
) -> None:
    fill(own_client, topic)
    expected = offsets(own_client, topic)
    options = {"url": own_broker.url, "subscribe": topic, "minPartitions": "2"}
    returning: list[threading.Thread] = []

    def kill(_: int = 0) -> None:
        for thread in returning:
            thread.join()
        own_broker.kill()
        returning.append(threading.Thread(target=own_broker.restart))
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
    spark: Spark, own_broker: BrokerProcess, own_client: Client, topic: str, queries: Queries
) -> None:
    own_client.publish(topic, [b"x"] * 10)
    options = {"url": own_broker.url, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("quoth").options(**options).load()
    queries.run(stream)
    own_broker.terminate()
    with pytest.raises(Exception, match=r"disconnected|timed_out"):
        queries.run(spark.readStream.format("quoth").options(**options, timeout="300ms").load())
    own_broker.restart()
    own_client.publish(topic, [b"y"] * 10)
    queries.run(stream)
    assert queries.values == [b"x"] * 10 + [b"y"] * 10
