"""Spark and a broker with keys: the path of a key file reaches the driver and every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.keys import KeyFiles, new_key
from quoth import AuthError, RequestError
from quoth.spark import (
    foreach_partition,
    map_in_arrow,
    read_topic,
    register_views,
    topic_ranges,
    topic_ranges_frame,
)
from quoth.spark.jobs import archive, replay, stats
from quoth.spark.jobs.reasons import reason
from quoth.spark.jobs.session import JobBroker
from quoth.spark.replay.inputs import ReplayRequest
from quoth.spark.sink.foreach_producer import write_partition

VALUES = [b"%d" % number for number in range(100)]


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    """The keys of the broker and of its clients."""
    return KeyFiles(tmp_path)


@pytest.fixture
def key(keys: KeyFiles) -> str:
    """The path of the key file of a client that may do everything."""
    return str(keys.write_key(keys.add("alice")))


@pytest.fixture
def stranger(keys: KeyFiles) -> str:
    """The path of the key file of a client that the broker does not know."""
    return str(keys.write_key(new_key("bob", keys.server)))


@pytest.fixture
def keyed(start_broker: StartBroker, keys: KeyFiles, key: str) -> BrokerProcess:
    """The broker."""
    assert key
    return start_broker(**keys.settings)


def fill(keyed: BrokerProcess, key: str, topic: str) -> None:
    with quoth.connect(keyed.url, key=key) as client:
        client.publish(topic, VALUES)


def read(keyed: BrokerProcess, key: str, topic: str) -> list[bytes]:
    """The values of a topic, sorted."""
    with quoth.connect(keyed.url, key=key) as client:
        return sorted(one.value for one in client.read(topic, limit=10_000))


def test_tables_views_and_sinks_use_the_key(
    spark: Any, keyed: BrokerProcess, key: str, topic: str, tmp_path: Path
) -> None:
    fill(keyed, key, topic)
    there = {"url": keyed.url, "key": key}
    rows = read_topic(spark, topic, url=keyed.url, key=key)
    rows.write.format("quoth").options(topic="table", **there).mode("append").save()
    assert read(keyed, key, "table") == sorted(VALUES)
    stream = spark.readStream.format("quoth").options(
        subscribe=topic, startingOffsets="earliest", group="report", **there
    )
    sink = {"topic": "stream", "checkpointLocation": str(tmp_path / "checkpoint"), **there}
    query = stream.load().writeStream.format("quoth").options(**sink).trigger(availableNow=True).start()
    query.awaitTermination()
    assert read(keyed, key, "stream") == sorted(VALUES)
    with quoth.connect(keyed.url, key=key) as client:
        assert client.cursor(topic, "report", create=False).lag().records == 0
    (view,) = register_views(spark, topic, url=keyed.url, key=key)
    assert spark.sql(f"SELECT count(*) AS n FROM `{view}`").collect()[0].n == len(VALUES)
    spark.catalog.dropTempView(view)


@pytest.mark.usefixtures("by_value")
def test_ranges_carry_the_path_of_the_key(spark: Any, keyed: BrokerProcess, key: str, topic: str) -> None:
    fill(keyed, key, topic)

    def copy(one: Any, messages: Any) -> None:
        rows = [message.value for message in messages]
        name = f"{one.after}"
        write_partition(rows, "copy", application="copy", url=one.url, partition=name, key=one.key)

    def lengths(_one: Any, batches: Any) -> Any:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    ranges = topic_ranges(spark, topic, url=keyed.url, key=key)
    foreach_partition(ranges, copy, decode="messages")
    assert read(keyed, key, "copy") == sorted(VALUES)
    frame = topic_ranges_frame(spark, topic, url=keyed.url, key=key)
    counts = map_in_arrow(frame, lengths, "rows LONG").collect()
    assert sum(row.rows for row in counts) == len(VALUES)
    with pytest.raises(RequestError, match="has to be the same on the driver and all executors"):
        topic_ranges(spark, topic, url=keyed.url, key="alice.key")


def test_key_that_is_refused_ends_driver_and_job_with_one_line(
    spark: Any, keyed: BrokerProcess, stranger: str, topic: str
) -> None:
    with pytest.raises((PySparkException, Py4JError)) as raised:
        read_topic(spark, topic, url=keyed.url, key=stranger).collect()
    line = reason(raised.value, spark)
    assert "AuthError: auth_failed: " in line
    assert "\n" not in line
    for given in (stranger, None):
        with pytest.raises(AuthError):
            stats.job(topic, broker=JobBroker(keyed.url, key=given))


@pytest.mark.usefixtures("by_value")
def test_key_file_that_an_executor_misses_is_named_with_the_host(
    spark: Any, keyed: BrokerProcess, key: str, topic: str
) -> None:
    fill(keyed, key, topic)
    ranges = topic_ranges(spark, topic, url=keyed.url, key=key, parts=1)
    Path(key).rename(f"{key}.elsewhere")
    with pytest.raises((PySparkException, Py4JError)) as raised:
        foreach_partition(ranges, lambda _, batches: list(batches).clear())
    line = reason(raised.value, spark)
    assert f"bad_setting: the key file {key}: No such file or directory" in line
    assert "(host " in line


def test_jobs_use_the_key_on_the_driver_and_in_tasks(
    spark: Any, keyed: BrokerProcess, key: str, topic: str, tmp_path: Path
) -> None:
    fill(keyed, key, topic)
    broker = JobBroker(keyed.url, key=key)
    assert archive.archiving(tmp_path / "archive", topic, broker=broker)(spark).content["records"] == 100
    done = replay.job(tmp_path / "archive", request=ReplayRequest(to=("again",)), broker=broker)
    assert done(spark).content["records"] == 100  # type: ignore[operator]
    assert read(keyed, key, "again") == sorted(VALUES)
    (summary,) = stats.job(topic, broker=broker)(spark).content["topics"]
    assert summary["records"] == 100
