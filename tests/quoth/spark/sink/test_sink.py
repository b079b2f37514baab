"""`df.write` and `df.writeStream`: the rows are in the topic whole, once, and as they were."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException

import quoth
from kit.broker.brokers import BrokerProcess
from kit.spark.sinks import register
from quoth import Client, Message

Write = Callable[..., None]


@pytest.fixture(scope="module")
def sink(spark: Any) -> str:
    """The name of the format."""
    return register(spark, "quoth_sink")


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    """A client that looks what is there."""
    with quoth.connect(broker.url) as client:
        yield client


@pytest.fixture
def write(sink: str, broker: BrokerProcess) -> Write:
    """Write a DataFrame: `write(rows, topic="t", txnAppId="a", txnVersion=1)`."""

    def append(rows: Any, mode: str = "append", **options: Any) -> None:
        rows.write.format(sink).option("url", broker.url).options(**options).mode(mode).save()

    return append


def messages(client: Client, topic: str) -> list[Message]:
    """Everything in a topic."""
    return [message for batch in client.batches(topic) for message in batch]


def numbers(client: Client, topic: str) -> list[int]:
    """The values of a topic, as the numbers that they are."""
    return [int(value) for batch in client.batches(topic) for value in batch.values]


def numbered(spark: Any, count: int, partitions: int = 2) -> Any:
    """Rows whose values are numbers."""
    return spark.range(count, numPartitions=partitions).selectExpr("CAST(id AS STRING) AS value")


# -- what is written ----------------------------------------------------------------------------------------


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


def test_rows_are_one_stretch_in_the_order_of_the_partitions(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    write(numbered(spark, 50_000, partitions=5), topic=topic)
    assert numbers(client, topic) == list(range(50_000))
    pointers = [one.pointer for one in messages(client, topic)]
    assert pointers == list(range(pointers[0], pointers[0] + 50_000))


def test_rows_of_a_column_go_where_it_says_unless_the_option_says_it(
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


def test_rows_for_more_topics_than_a_task_takes_are_refused_with_what_helps(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    rows = spark.range(100, numPartitions=1).selectExpr("'x' AS value", f"concat('{topic}-', id) AS topic")
    with pytest.raises(PythonException, match=r"too_large: .* \(repartition\(N, 'topic'\)"):
        write(rows.repartition("topic"))
    assert not [name for name in client.topics() if name.startswith(topic)]
    write(rows.repartition(4, "topic"))
    assert len([name for name in client.topics() if name.startswith(topic)]) == 100


def test_nothing_is_written_where_there_are_no_rows(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    write(numbered(spark, 0), topic=topic)
    write(numbered(spark, 10).where("value > 'a'"), topic=topic, txnAppId="app", txnVersion=1)
    assert topic not in client.topics()


def test_what_was_read_of_kafka_or_quoth_is_written_without_its_place(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    rows = numbered(spark, 3).selectExpr("value", "7L AS offset", "0 AS partition", "now() AS timestamp")
    write(rows, topic=topic)
    assert numbers(client, topic) == [0, 1, 2]


# -- once ---------------------------------------------------------------------------------------------------


def test_append_that_is_repeated_under_the_same_name_is_there_once(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    rows = numbered(spark, 1_000)
    for version in (7, 7, 8, 7, 8):
        write(rows, topic=topic, txnAppId="app", txnVersion=version)
    assert len(numbers(client, topic)) == 2_000
    write(rows, topic=topic, txnAppId="other", txnVersion=7)
    assert len(numbers(client, topic)) == 3_000
    assert client.topic(topic).counters["staged_bytes"] == 0


def test_append_without_a_name_is_another_one_each_time(
    spark: Any, client: Client, write: Write, topic: str
) -> None:
    for _ in range(2):
        write(numbered(spark, 10), topic=topic)
    assert len(numbers(client, topic)) == 20


def test_micro_batches_of_foreach_batch_are_there_once_under_their_number(
    spark: Any, client: Client, write: Write, topic: str, tmp_path: Path
) -> None:
    """As Delta's documentation has it; each is written twice here."""
    put(tmp_path / "in", range(100))

    def twice(rows: Any, version: int) -> None:
        for _ in range(2):
            write(rows, topic=topic, txnAppId="app", txnVersion=version)

    stream = spark.readStream.text(str(tmp_path / "in")).writeStream.foreachBatch(twice)
    run(stream, tmp_path)
    assert numbers(client, topic) == list(range(100))


# -- streams ------------------------------------------------------------------------------------------------


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
    assert started.awaitTermination(100)
    return started


def written(spark: Any, sink: str, broker: BrokerProcess, folder: Path, topic: str) -> Any:
    """The writing of a stream of files to a topic, one micro-batch a file."""
    files = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in"))
    return files.writeStream.format(sink).option("url", broker.url).option("topic", topic)


def test_stream_goes_on_where_its_checkpoint_says(
    spark: Any, sink: str, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    put(tmp_path / "in", range(100))
    put(tmp_path / "in", range(100, 300))
    first = run(written(spark, sink, broker, tmp_path, topic), tmp_path)
    assert numbers(client, topic) == list(range(300))
    put(tmp_path / "in", range(300, 1_000))
    again = run(written(spark, sink, broker, tmp_path, topic), tmp_path)
    assert first.id == again.id
    assert numbers(client, topic) == list(range(1_000))
    assert client.transaction(topic, first.id, 2).status().count == 700


def test_micro_batch_that_is_run_again_is_there_once(
    spark: Any, sink: str, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """As when the driver died between its commit and the checkpoint's."""
    put(tmp_path / "in", range(100))
    run(written(spark, sink, broker, tmp_path, topic), tmp_path)
    put(tmp_path / "in", range(100, 200))
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run(written(spark, sink, broker, tmp_path, topic), tmp_path)
    assert numbers(client, topic) == list(range(200))
    assert client.topic(topic).counters["staged_bytes"] == 0


def test_stream_with_a_name_of_its_own_goes_on_under_it(
    spark: Any, sink: str, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """The same micro-batches from another checkpoint are the same transactions."""
    put(tmp_path / "in", range(100))
    for _ in range(2):
        run(written(spark, sink, broker, tmp_path, topic), tmp_path, txnAppId="app")
        shutil.rmtree(tmp_path / "checkpoint")
    assert numbers(client, topic) == list(range(100))


def test_new_checkpoint_under_an_old_name_is_told_and_not_taken_for_repetitions(
    spark: Any, sink: str, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Its micro-batches have the numbers of others; their rows would be passed over."""
    put(tmp_path / "in", range(100))
    put(tmp_path / "in", range(100, 200))
    run(written(spark, sink, broker, tmp_path, topic), tmp_path, txnAppId="app")
    shutil.rmtree(tmp_path / "checkpoint")
    put(tmp_path / "in", range(200, 300))
    with pytest.raises(Exception, match="needs a new txnAppId"):
        run(written(spark, sink, broker, tmp_path, topic), tmp_path, txnAppId="app")
    assert numbers(client, topic) == list(range(200))


def test_stream_that_would_overwrite_is_refused(
    spark: Any, sink: str, client: Client, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    put(tmp_path / "in", range(9))
    counted = spark.readStream.text(str(tmp_path / "in")).groupBy("value").count().select("value")
    writing = counted.writeStream.format(sink).outputMode("complete").option("url", broker.url)
    with pytest.raises(Exception, match=r'outputMode\("append"\)'):
        run(writing, tmp_path, topic=topic)
    assert topic not in client.topics()


# -- what a stranger sees -----------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "overwrite": ({}, "overwrite", 'mode("append")'),
    "an option that is none": ({"tpoic": "t"}, "append", "did you mean topic?"),
    "a name without a version": ({"txnAppId": "app"}, "append", "set both or none"),
    "a version that is none": ({"txnAppId": "app", "txnVersion": "one"}, "append", "a whole number from"),
    "a version below none": ({"txnAppId": "app", "txnVersion": "-1"}, "append", "a whole number from"),
    "an application without a name": ({"txnAppId": "", "txnVersion": "1"}, "append", "application"),
    "a topic that is none": ({"topic": "a/b"}, "append", "bad_topic"),
    "a path": ({"path": "x"}, "append", "a topic is no path"),
    "two addresses": ({"quoth.bootstrap.servers": "a:1"}, "append", "set one of url"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_before_anything_runs_with_what_can(
    spark: Any, client: Client, write: Write, topic: str, name: str
) -> None:
    options, mode, says = WRONG[name]
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as problem:
        write(numbered(spark, 3), mode, **{"topic": topic, **options})
    assert says in str(problem.value)
    assert topic not in client.topics()


def test_row_that_cannot_be_written_ends_the_job_and_nothing_of_it_is_there(
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


def test_broker_that_is_not_there_is_told(spark: Any, sink: str, rng: random.Random) -> None:
    rows = numbered(spark, 3).write.format(sink).option("url", f"tcp://127.0.0.1:{rng.randrange(1, 1_000)}")
    with pytest.raises(Exception, match="no broker answers at"):
        rows.option("topic", "t").option("timeout", "300ms").mode("append").save()
