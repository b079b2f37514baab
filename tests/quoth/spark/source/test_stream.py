"""`spark.readStream.format("quoth")`: every record in one batch, through restarts, limits and losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually
from kit.spark.sparks import Queries
from quoth import Client
from quoth.spark import Lag, LagListener, QuothDataSource, connections
from quoth.spark.options import parse
from quoth.spark.source.source import StreamReader

Load = Callable[..., Any]
Spark = Any


@pytest.fixture
def load(spark: Spark, broker: BrokerProcess, topic: str) -> Load:
    """A stream of the test's topic from its beginning, unless something else is said."""

    def load_it(source: str = "quoth", **options: str) -> Any:
        topics = {} if "subscribePattern" in options else {"subscribe": topic}
        starts = {} if "startingOffsets" in options else {"startingOffsets": "earliest"}
        chosen = {"url": broker.url, **topics, **starts, **options}
        return spark.readStream.format(source).options(**chosen).load()

    return load_it


def numbers(begin: int, end: int) -> list[bytes]:
    """Values that show their order."""
    return [b"%06d" % number for number in range(begin, end)]


class Busy(QuothDataSource):
    """A topic to which 30 records are published whenever it is asked where to begin."""

    @classmethod
    def name(cls) -> str:
        return "busy"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return BusyReader(parse(self.options, stream=True), schema)


class BusyReader(StreamReader):
    """Its reader."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = super().initialOffset()
        connections.client(self.options.url).publish(self.options.topics[0], [b"while it begins"] * 30)
        return found


def test_records_published_while_a_query_begins_are_read_also_after_a_crash(
    spark: Spark, load: Load, queries: Queries, client: Client, topic: str, by_value: None
) -> None:
    spark.dataSource.register(Busy)
    last = client.publish(topic, [b"before"] * 100).last
    stream = load("busy", startingOffsets="latest")
    queries.on_batch = crash_in(0)
    with pytest.raises(Exception, match="as intended"):
        queries.run(stream)
    queries.on_batch = lambda _: None
    client.publish(topic, [b"after the crash"] * 20)
    queries.run(stream)
    queries.run(stream)
    expected = [one.pointer for one in client.read(topic, after=last, limit=10_000)]
    assert len(expected) >= 80
    assert sorted(row.offset for row in queries.rows) == expected


def test_a_failed_batch_is_read_again_with_the_same_rows_for_any_options(
    load: Load, queries: Queries, client: Client, topic: str
) -> None:
    """With AvailableNow a run ends where the topic ended, and a producer goes on meanwhile."""
    client.publish(topic, numbers(0, 100))
    queries.on_batch = crash_in(1)
    with pytest.raises(Exception, match="as intended"):
        queries.run(load(maxOffsetsPerTrigger="30"))
    client.publish(topic, numbers(100, 110))
    queries.on_batch = lambda number: client.publish(topic, numbers(80 + 30 * number, 110 + 30 * number))
    queries.run(load(maxOffsetsPerTrigger="1000", minPartitions="5"))
    assert [len(queries.batches[number]) for number in sorted(queries.batches)] == [30, 30, 50]
    assert queries.values == numbers(0, 110)
    query = queries.run(load())
    assert queries.values == numbers(0, 170)
    end = json.loads(query.lastProgress.sources[0].endOffset)["topics"][topic]
    assert (end["ordinal"], end["lost"]) == (170, 0)


def test_records_removed_by_retention_end_the_query_or_are_counted_in_its_offsets(
    load: Load, queries: Queries, client: Client, topic: str
) -> None:
    client.publish(topic, numbers(0, 10))
    queries.run(load())
    client.publish(topic, numbers(10, 25))
    client.roll(topic)
    client.trim(topic, client.publish(topic, numbers(25, 30)).first)
    with pytest.raises(Exception, match=r"unknown_record: topic .*: 15 records after"):
        queries.run(load())
    query = queries.run(load(failOnDataLoss="false", lossTopic=f"{topic}-losses"))
    assert queries.values == [*numbers(0, 10), *numbers(25, 30)]
    assert json.loads(query.lastProgress.sources[0].endOffset)["topics"][topic]["lost"] == 15
    (reported,) = [json.loads(one.value) for one in client.read(f"{topic}-losses")]
    assert (reported["topic"], reported["records"], reported["reason"]) == (topic, 15, "trimmed")


def test_a_listener_reports_the_lag_of_a_query_and_never_ends_it(
    spark: Spark, load: Load, queries: Queries, client: Client, topic: str
) -> None:
    reported: list[Lag] = []

    def report(lag: Lag) -> None:
        reported.append(lag)
        raise ValueError("what a listener does is no matter of the query")

    listener = LagListener(report)
    spark.streams.addListener(listener)
    try:
        client.publish(topic, numbers(0, 40))
        first, last = client.topic(topic).first, client.publish(topic, numbers(40, 100)).last
        queries.run(load(maxOffsetsPerTrigger="40"))
        eventually(lambda: len(reported) >= 3, "three batches are reported")
    finally:
        spark.streams.removeListener(listener)
    assert [(lag.topic, lag.batch, lag.records, lag.lost) for lag in reported] == [
        (topic, 0, 60, 0), (topic, 1, 20, 0), (topic, 2, 0, 0)
    ]  # fmt: skip
    assert reported[0].seconds == (last - (first + 39)) / 1e6
    assert reported[2].seconds == 0
    assert queries.values == numbers(0, 100)


def crash_in(batch: int) -> Callable[[int], None]:
    """Fail when this batch is to be processed."""

    def crash(number: int) -> None:
        if number == batch:
            raise RuntimeError("as intended")

    return crash
