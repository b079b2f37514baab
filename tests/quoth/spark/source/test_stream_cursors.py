"""The option `group`: where a query begins, and the named cursors that show the progress of a stream."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from kit.broker.brokers import BrokerProcess
from kit.spark.sparks import Queries
from quoth import Client, Conflict, GroupMessage, NotFound
from quoth.spark.options import parse
from quoth.spark.source import stream_cursors
from quoth.spark.source.partitioning import extents_now
from quoth.spark.source.source import COLUMNS, StreamReader

GROUP = "report"
Open = Callable[..., StreamReader]


@pytest.fixture
def opened(broker: BrokerProcess, topic: str) -> Open:
    """Make the reader of a stream of the test's topic in the group, as Spark does in a process of its own."""

    def open_it(**given: str) -> StreamReader:
        options = {"url": broker.url, "subscribe": topic, "group": GROUP, **given}
        return StreamReader(parse(options, stream=True), StructType().add("value", COLUMNS["value"]))

    return open_it


def end_of(reader: StreamReader, start: dict[str, Any] | None = None) -> dict[str, Any]:
    """Plan the next micro-batch, after a way through the journal."""
    begin = reader.initialOffset() if start is None else start
    end: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(begin, ReadAllAvailable())))
    return end


def begins(reader: StreamReader) -> dict[str, int]:
    """The pointers at which a new query begins, by topic."""
    return {topic: one["next"] for topic, one in reader.initialOffset()["topics"].items()}


def member_with_one_done(client: Client, topic: str) -> GroupMessage:
    """Acknowledge the first record of the topic in a group with leases; returns the second one."""
    with client.group(topic, GROUP) as group:
        first, second = group.fetch(2)
        first.ack()
    return second


def test_new_stream_begins_at_the_cursor_of_each_topic_that_has_one(
    opened: Open, client: Client, topic: str
) -> None:
    ends = {name: client.publish(name, [b"x"] * 5).last for name in (topic, f"{topic}-2", f"{topic}-3")}
    client.cursor(topic, GROUP).commit(ends[topic] - 2)
    client.cursor(f"{topic}-2", GROUP, start="begin").pointer()
    names = ",".join(ends)
    at_end = {f"{topic}-3": ends[f"{topic}-3"] + 1, topic: ends[topic] - 1}
    assert begins(opened(subscribe=names)) == {**at_end, f"{topic}-2": client.topic(f"{topic}-2").first}
    early = begins(opened(subscribe=names, startingOffsets="earliest"))
    assert (early[topic], early[f"{topic}-3"]) == (ends[topic] - 1, client.topic(f"{topic}-3").first)


def test_commits_create_the_cursor_and_move_it_through_a_seek_and_its_deletion(
    opened: Open, client: Client, topic: str
) -> None:
    client.publish(topic, [b"x"] * 5)
    reader = opened(startingOffsets="earliest")
    end = end_of(reader)
    with pytest.raises(NotFound):
        client.cursor(topic, GROUP, create=False).pointer()
    reader.commit(end)
    cursor = client.cursor(topic, GROUP, create=False)
    assert cursor.pointer() == client.topic(topic).last
    for disturb in (lambda: cursor.seek("begin"), cursor.delete):
        last = client.publish(topic, [b"y"] * 5).last
        disturb()
        end = end_of(reader, end)
        reader.commit(end)
        assert client.cursor(topic, GROUP, create=False).lag().records == 0
        assert client.cursor(topic, GROUP, create=False).pointer() == last


def test_group_with_leases_refuses_a_stream_and_tells_a_batch_query_where_to_begin(
    opened: Open, client: Client, topic: str
) -> None:
    client.publish(topic, [b"x"] * 5)
    before = end_of(opened(group="other", startingOffsets="earliest"))
    second = member_with_one_done(client, topic)
    for plan in (opened().initialOffset, lambda: end_of(opened(), before)):
        with pytest.raises(Conflict, match="is no cursor: its members acknowledge its records") as refused:
            plan()
        assert refused.value.code == "group_exists"
    options = parse({"url": client.url, "subscribe": topic, "group": GROUP}, stream=False)
    (extent,) = extents_now(client, options, lambda loss: pytest.fail(f"{loss}"))
    assert (extent.after, extent.until) == (second.pointer - 1, client.topic(topic).last)


def test_records_that_retention_took_above_the_cursor_are_a_loss(
    opened: Open, client: Client, topic: str
) -> None:
    first = client.publish(topic, [b"x"] * 5).first
    client.cursor(topic, GROUP).commit(first)
    client.roll(topic)
    client.trim(topic, client.publish(topic, b"y").first)
    with pytest.raises(NotFound, match="5 records after"):  # at most: some were done
        opened().initialOffset()
    assert opened(failOnDataLoss="false").initialOffset()["topics"][topic]["lost"] == 5


@pytest.mark.parametrize("timeout", ["1s", "20s"])
def test_commit_to_a_broker_that_is_away_is_logged_and_made_good_by_the_next(
    own_broker: BrokerProcess,
    own_client: Client,
    opened: Open,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    timeout: str,
) -> None:
    """Reports are given up sooner than reads, so that they may have a client of their own."""
    own_client.publish(topic, [b"x"] * 5)
    end = end_of(opened(url=own_broker.url, startingOffsets="earliest"))
    reader = opened(url=own_broker.url, startingOffsets="earliest", timeout=timeout)
    own_broker.terminate()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "quoth.spark"):
        patch.setattr(stream_cursors, "REPORT_S", 1.0)
        reader.commit(end)
    assert f"cursor '{GROUP}' of topic '{topic}': not committed: " in caplog.text
    own_broker.restart()
    last = own_client.publish(topic, b"y").last
    reader = opened(url=own_broker.url)
    reader.commit(end_of(reader, end))
    assert own_client.cursor(topic, GROUP, create=False).pointer() == last


def test_query_shows_its_progress_and_another_one_goes_on_there(
    spark: Any, queries: Queries, broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.publish(topic, [b"%02d" % number for number in range(60)])

    def load(**given: str) -> Any:
        options = {"url": broker.url, "subscribe": topic, "startingOffsets": "earliest", "group": GROUP}
        return spark.readStream.format("quoth").options(**{**options, **given}).load()

    cursor = client.cursor(topic, GROUP, create=False)
    lags: dict[int, int] = {}

    def look(number: int) -> None:
        if number:
            lags[number] = cursor.lag().records

    queries.on_batch = look
    queries.run(load(maxOffsetsPerTrigger="20"))
    assert lags == {1: 40, 2: 20}
    assert cursor.lag().records == 0
    client.publish(topic, [b"%02d" % number for number in range(60, 70)])
    other = Queries(queries.checkpoint.with_name("other"))
    other.run(load())
    assert other.values == [b"%02d" % number for number in range(60, 70)]
    table = spark.read.format("quoth").options(url=broker.url, subscribe=topic, group=GROUP).load()
    assert table.count() == 0
    client.group(topic, "members").info()
    with pytest.raises(Exception, match=r"group_exists: group 'members' of topic .* is no cursor"):
        queries.run(load(group="members"))
