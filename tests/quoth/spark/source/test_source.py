"""`spark.read.format("quoth")`: the rows that a client reads, and clear words where there are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from kit.broker.brokers import BrokerProcess
from quoth import Client, RequestError
from quoth.spark import read_topic
from quoth.spark.source.source import check_schema

Load = Callable[..., Any]
Spark = Any


@pytest.fixture
def load(spark: Spark, broker: BrokerProcess, topic: str) -> Load:
    """A table of the test's topic: `load(endingOffsets="latest")`."""

    def load_it(**options: str) -> Any:
        chosen = {
            "url": broker.url,
            **({} if "subscribePattern" in options else {"subscribe": topic}),
            **options,
        }
        return spark.read.format("quoth").options(**chosen).load()

    return load_it


def fill(client: Client, topic: str, batches: int, records: int = 10) -> None:
    """Batches with and without keys and headers, with empty values."""
    for batch in range(batches):
        values = [b"" if number % 7 == 3 else b"%d-%d" % (batch, number) for number in range(records)]
        keys = [None if number % 3 else b"" if number % 2 else b"k%d" % number for number in range(records)]
        headers = [{} if number % 2 else {"n": b"%d" % number, "": b""} for number in range(records)]
        client.publish(topic, values, key=keys if batch % 2 else None, headers=headers if batch % 3 else None)


def values(frame: Any) -> list[bytes]:
    """The values, oldest first."""
    return [bytes(row.value) for row in sorted(frame.collect(), key=lambda row: row.offset)]


def test_rows_are_those_that_a_client_reads(load: Load, client: Client, topic: str) -> None:
    fill(client, topic, 9)
    expected = [
        (
            one.key, one.value, topic, 0, one.pointer, one.time.replace(tzinfo=None), 1,
            [(name, value) for name, value in one.headers.items()] or None,
        )
        for one in client.read(topic)
    ]  # fmt: skip
    found = [
        (
            row.key if row.key is None else bytes(row.key), bytes(row.value), row.topic, row.partition,
            row.offset, row.timestamp, row.timestampType,
            row.headers and [(header.key, bytes(header.value)) for header in row.headers],
        )
        for row in load(includeHeaders="true", minPartitions="3").orderBy("offset").collect()
    ]  # fmt: skip
    assert found == expected
    assert len(found) == 90
    kafkas = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert load().columns == kafkas
    assert load(includeHeaders="true").columns == [*kafkas, "headers"]
    client.create_topic(f"{topic}-empty")
    assert load(subscribe=f"{topic}-empty").collect() == []


def test_number_of_tasks_is_that_of_its_option(spark: Spark, client: Client, topic: str) -> None:
    fill(client, topic, 20)
    for name in ("minPartitions", "minpartitions"):
        options: dict[str, Any] = {name: "5"}
        assert read_topic(spark, topic, url=client.url, **options).rdd.getNumPartitions() == 5
        with pytest.raises(RequestError, match="parts and minPartitions"):
            read_topic(spark, topic, url=client.url, parts=3, **options)
    assert read_topic(spark, topic, url=client.url).rdd.getNumPartitions() == 2


def test_a_topic_is_read_by_name_in_one_call(
    spark: Spark, broker: BrokerProcess, client: Client, topic: str
) -> None:
    ack = client.publish(topic, [b"%d" % number for number in range(10)])
    found = read_topic(
        spark, topic, url=broker.url, after=ack.first, until=ack.last, columns=["offset", "value", "ordinal"]
    )
    assert found.columns == ["offset", "value", "ordinal"]
    assert [(row.offset - ack.first, row.ordinal) for row in found.collect()] == [(n, n) for n in range(1, 9)]
    with pytest.raises(RequestError, match=r"column body: there is no such column \(name any of: key binary"):
        read_topic(spark, topic, url=broker.url, columns=["body"])
    for one in (f"{topic},other", [topic, "a,b"]):
        with pytest.raises(
            RequestError, match=r"bad_request: topic '.*,.*' has a comma.*a list.*subscribePattern"
        ):
            read_topic(spark, one, url=broker.url)
    client.publish(f"{topic}-other", b"x")
    assert read_topic(spark, [topic, f"{topic}-other"], url=broker.url).count() == 11


def test_a_table_of_a_catalog_is_refused_with_a_way_around(
    spark: Spark, broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.publish(topic, b"x")
    options = f"OPTIONS (url '{broker.url}', subscribe '{topic}')"
    with pytest.raises(Exception, match=r"bad_request: no table .*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE lasting USING quoth {options}")
    assert not spark.catalog.tableExists("lasting")


def test_two_tables_of_one_topic_are_independent(load: Load, client: Client, topic: str) -> None:
    first = client.publish(topic, [b"%d" % number for number in range(10)]).first
    early, late = load(until=str(first + 5)), load(since=str(first + 5))
    assert values(early.union(late)) == [b"%d" % number for number in range(10)]
    assert (early.where(f"offset < {first + 2}").count(), early.count(), late.count()) == (2, 5, 5)


def test_schema_chooses_columns_and_only_those_that_exist(
    spark: Spark, broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.publish(topic, b"x")
    reader = spark.read.format("quoth").options(url=broker.url, subscribe=topic)
    (row,) = reader.schema("ordinal long, value binary not null").load().collect()
    assert (row.ordinal, bytes(row.value)) == (0, b"x")
    for fields, reported in (
        (
            [StructField("value", StringType())],
            "column value string: there is no such column (name any of: key binary, value binary,",
        ),
        ([StructField("key", BinaryType(), False)], "column key NOT NULL: not every record has one"),
        ([], "a schema without columns"),
    ):
        with pytest.raises(RequestError) as caught:
            check_schema(StructType(fields))
        assert reported in str(caught.value)


def test_wrong_options_are_reported_before_a_read(load: Load) -> None:
    for options, reported in (
        ({"endingOfsets": "latest"}, "there is no option 'endingofsets' (did you mean endingOffsets?)"),
        ({"subscribe": "no-such-topic"}, "unknown_topic"),
        ({"url": "tcp://127.0.0.1:1", "timeout": "200ms"}, "disconnected"),
    ):
        with pytest.raises(Exception, match=r"PYTHON_DATA_SOURCE_ERROR") as caught:
            load(**options).collect()
        assert reported in str(caught.value)


def test_records_removed_between_plan_and_read_are_an_error_or_reported_in_a_topic(
    load: Load, client: Client, topic: str
) -> None:
    for number in range(4):
        ack = client.publish(topic, [b"%d" % number] * 5)
        client.roll(topic)
    losses = f"{topic}-losses"
    strict = load(minPartitions="1")
    lenient = load(minPartitions="4", failOnDataLoss="false", lossTopic=losses)
    assert strict.count() == lenient.count() == 20  # planned
    client.trim(topic, ack.first)
    with pytest.raises(Exception, match="unknown_record") as caught:
        strict.count()
    assert f"topic '{topic}': 15 records after" in str(caught.value)
    assert "failOnDataLoss=false" in str(caught.value)
    assert values(lenient) == [b"3"] * 5
    reported = [json.loads(one.value) for one in client.read(losses)]
    assert len({one["after"] for one in reported}) == 3
    assert [(one["topic"], one["records"], one["reason"]) for one in reported] == [(topic, 5, "trimmed")] * 3
