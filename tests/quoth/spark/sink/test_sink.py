"""`df.write` and `df.writeStream`: the rows are in the topic whole, once, and as they were."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kit.broker.brokers import BrokerProcess
from kit.client.records import messages, numbers
from kit.spark.sparks import JOB_S
from quoth import Client, QuothError
from quoth.spark.sink.sink import TOPICS_MAX, parse, stage

Write = Callable[..., None]


@pytest.fixture
def write(broker: BrokerProcess) -> Write:
    """Write a DataFrame: `write(rows, topic="t", txnAppId="a", txnVersion=1)`."""

    def append(rows: Any, mode: str = "append", **options: Any) -> None:
        rows.write.format("quoth").option("url", broker.url).options(**options).mode(mode).save()

    return append


def numbered(spark: Any, count: int, partitions: int = 2) -> Any:
    """Rows whose values are numbers."""
    return spark.range(count, numPartitions=partitions).selectExpr("CAST(id AS STRING) AS value")


def test_records_are_the_rows_as_they_were(spark: Any, client: Client, write: Write, topic: str) -> None:
    given = [
        (b"k", b"v", [("a", b"1"), ("b", b"")]),
        (None, b"", []),
        (b"", bytes(range(256)), None),
        ("schlüssel".encode(), b"x" * 100_000, [("é", b"\x00")]),
    ]
    schema = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    write(spark.createDataFrame(given, schema).coalesce(1), topic=topic)
    assert [(one.key, one.value, dict(one.headers)) for one in messages(client, topic)] == [
        (key, value, dict(headers or [])) for key, value, headers in given
    ]


def test_rows_are_contiguous_and_in_the_order_of_the_partitions(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    write(numbered(spark, 50_000, partitions=5), topic=topic)
    assert numbers(client, topic) == list(range(50_000))
    pointers = [one.pointer for one in messages(client, topic)]
    assert pointers == list(range(pointers[0], pointers[0] + 50_000))


def test_rows_are_written_to_the_topic_of_the_option_or_else_of_their_column(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    rows = spark.range(1_000, numPartitions=3).selectExpr(
        f"CONCAT('{topic}-', id % 3) AS topic", "CAST(id AS STRING) AS value", "CAST(NULL AS STRING) AS key"
    )
    write(rows)
    for number in range(3):
        assert numbers(client, f"{topic}-{number}") == list(range(number, 1_000, 3))
    write(rows, topic=topic)
    assert numbers(client, topic) == list(range(1_000))


def test_rows_for_more_topics_than_a_task_takes_are_refused_with_a_remedy(client: Client, topic: str) -> None:
    schema = StructType([StructField("value", StringType()), StructField("topic", StringType())])
    names = [f"{topic}-{number}" for number in range(TOPICS_MAX + 1)]
    named = {"url": client.url, "txnAppId": "app", "txnVersion": "0"}
    rows = pa.RecordBatch.from_pydict({"value": ["x"] * len(names), "topic": names})
    with pytest.raises(QuothError, match=r"too_large: .* \(repartition\(N, 'topic'\)"):
        stage(parse(named, schema, False, stream=False), 0, iter([rows]))
    assert not [name for name in client.topics() if name.startswith(topic)]


def test_append_that_is_repeated_is_there_once_under_the_same_name_and_again_without_one(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    rows = numbered(spark, 1_000)
    write(rows.where("value > 'a'"), topic=topic, txnAppId="app", txnVersion=1)
    assert topic not in client.topics(), "no rows are no write"
    for version in (7, 7, 8, 7):
        write(rows, topic=topic, txnAppId="app", txnVersion=version)
    assert len(numbers(client, topic)) == 2_000
    write(rows, topic=topic, txnAppId="other", txnVersion=7)
    for _ in range(2):
        write(rows, topic=topic)  # without a name
    assert len(numbers(client, topic)) == 5_000
    assert client.topic(topic).counters["staged_bytes"] == 0


def put(folder: Path, values: range) -> None:
    """Put a file of numbers into the folder of a stream."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{values.start}"
    hidden.write_text("\n".join(map(str, values)))
    hidden.rename(folder / f"{values.start:09d}")


def run(writing: Any, folder: Path, **options: str) -> Any:
    """Run a stream up to its present end; returns the query."""
    started = (
        writing.option("checkpointLocation", str(folder / "checkpoint"))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    assert started.awaitTermination(JOB_S)
    return started


def written(spark: Any, broker: BrokerProcess, folder: Path, topic: str) -> Any:
    """The writing of a stream of files to a topic, one micro-batch a file."""
    files = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in"))
    return files.writeStream.format("quoth").option("url", broker.url).option("topic", topic)


def test_stream_continues_at_its_checkpoint(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    put(tmp_path / "in", range(100))
    put(tmp_path / "in", range(100, 300))
    first = run(written(spark, broker, tmp_path, topic), tmp_path)
    put(tmp_path / "in", range(300, 1_000))
    again = run(written(spark, broker, tmp_path, topic), tmp_path)
    assert first.id == again.id
    assert numbers(client, topic) == list(range(1_000))
    assert client.transaction(topic, first.id, 2).status().count == 700


def test_new_checkpoint_under_an_old_name_may_repeat_the_newest_micro_batch_and_no_earlier_one(
    spark: Any, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Other micro-batches would have the numbers of those that are there, and be passed over."""
    put(tmp_path / "in", range(100))
    run(written(spark, broker, tmp_path, topic), tmp_path, txnAppId="app")
    shutil.rmtree(tmp_path / "checkpoint")
    put(tmp_path / "in", range(100, 200))
    run(written(spark, broker, tmp_path, topic), tmp_path, txnAppId="app")
    assert numbers(client, topic) == list(range(200))
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="needs a new txnAppId"):
        run(written(spark, broker, tmp_path, topic), tmp_path, txnAppId="app")
    assert numbers(client, topic) == list(range(200))


WRONG: dict[str, dict[str, str]] = {
    "did you mean topic?": {"tpoic": "t"},
    "set both or none": {"txnAppId": "app"},
    "'one' (a whole number from": {"txnAppId": "app", "txnVersion": "one"},
    "'-1' (a whole number from": {"txnAppId": "app", "txnVersion": "-1"},
    "application": {"txnAppId": "", "txnVersion": "1"},
    "bad_topic": {"topic": "a/b"},
    "a topic is no path": {"path": "x"},
    "set one of url": {"quoth.bootstrap.servers": "a:1"},
}


def test_wrong_options_and_modes_are_refused() -> None:
    here = {"url": "tcp://127.0.0.1:1", "topic": "t"}
    schema = StructType([StructField("value", StringType())])
    for says, options in WRONG.items():
        with pytest.raises(QuothError) as problem:
            parse({**here, **options}, schema, False, stream=False)
        assert says in str(problem.value), options
    with pytest.raises(QuothError, match="txnVersion: the number of the micro-batch"):
        parse({**here, "txnVersion": "1"}, schema, False, stream=True)
    for stream in (False, True):
        with pytest.raises(QuothError, match=r'outputMode\("append"\)'):
            parse(here, schema, True, stream=stream)


def test_overwriting_is_refused_with_the_mode_that_works(spark: Any, client: Client, topic: str) -> None:
    write = numbered(spark, 1).write.format("quoth").options(url=client.url, topic=topic)
    with pytest.raises(Exception, match=r"\"Append\" or \"Overwrite\""):
        write.save()  # what Spark says before it asks any source: the next one has to say more
    with pytest.raises(Exception, match=r"cannot be overwritten.*mode\(\"append\"\)"):
        write.mode("overwrite").save()
    assert topic not in client.topics()


def test_row_that_cannot_be_written_ends_the_job_and_no_row_is_stored(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    rows = spark.range(1_000).selectExpr("CASE WHEN id < 999 THEN 'x' END AS value")
    with pytest.raises(Exception, match=r"a value is null \(leave such rows out") as problem:
        write(rows, topic=topic, txnAppId="app", txnVersion=1)
    assert "bad_request" in str(problem.value)
    if topic in client.topics():
        assert messages(client, topic) == []
        assert client.topic(topic).counters["staged_bytes"] == 0
    write(numbered(spark, 5), topic=topic, txnAppId="app", txnVersion=1)
    assert numbers(client, topic) == list(range(5))
