"""Faults of the sink: the topic has all rows once, whichever process is killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context
from kit.broker.proxies import Meddler, Wire
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.spark.sinks import Spoil, register
from kit.spark.sparks import TESTS
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Published

ROWS = 60_000
"""Of some 50 bytes: three batches a partition."""
SPARK_S = 100.0
"""What a job takes at most on a machine that does much else."""


@pytest.fixture(scope="module")
def sink(spark: Any) -> str:
    """The name of the format."""
    return register(spark, "quoth_sink")


@pytest.fixture
def own(start_broker: StartBroker) -> BrokerProcess:
    """A broker that may be killed."""
    return start_broker()


def check(broker: BrokerProcess, topic: str, count: int = ROWS) -> None:
    """The topic has each of the rows once, and nothing is staged any more."""
    with quoth.connect(broker.url, timeout=DEADLINE_S) as client:
        values = [int(value[:9]) for batch in client.batches(topic) for value in batch.values]
        assert len(values) == count
        assert sorted(values) == list(range(count))
        assert client.topic(topic).counters["staged_bytes"] == 0


def writing(spark: Any, sink: str, url: str, topic: str, count: int = ROWS) -> Any:
    """The writing of numbers to a topic."""
    rows = spark.range(count, numPartitions=2).selectExpr("RPAD(LPAD(id, 9, '0'), 50, '.') AS value")
    return rows.write.format(sink).option("url", url).option("topic", topic).mode("append")


# -- tasks --------------------------------------------------------------------------------------------------


def killed_in_the_middle(marks: Path) -> Spoil:
    """The first attempt at each partition is killed once it has taken two thirds of its rows."""

    def spoil(writer: Any) -> Any:
        write = writer.write

        def write_some(rows: Iterator[Any]) -> Any:
            def some() -> Iterator[Any]:
                for number, batch in enumerate(rows):
                    if number == 2 and is_first_attempt(marks):
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield batch

            return write(some())

        writer.write = write_some
        return writer

    return spoil


def failed_at_the_end(marks: Path) -> Spoil:
    """The first attempt at each partition fails after everything is staged."""

    def spoil(writer: Any) -> Any:
        write = writer.write

        def write_and_fail(rows: Iterator[Any]) -> Any:
            message = write(rows)
            if is_first_attempt(marks):
                raise RuntimeError("of the test")
            return message

        writer.write = write_and_fail
        return writer

    return spoil


def is_first_attempt(marks: Path) -> bool:
    """True for the first attempt at a partition, which leaves a mark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber():
        return False
    (marks / str(context.partitionId())).touch()
    return True


def failed_for_good(writer: Any) -> Any:
    """One partition fails, after the others are staged."""
    from pyspark import TaskContext

    write = writer.write

    def write_or_fail(rows: Iterator[Any]) -> Any:
        message = write(rows)
        if TaskContext.get().partitionId() == 1:  # type: ignore[union-attr]
            raise RuntimeError("of the test")
        return message

    writer.write = write_or_fail
    return writer


def commit_fails_afterwards(writer: Any) -> Any:
    """The commit fails though all is published; Spark aborts then."""
    commit = writer.commit

    def commit_and_fail(messages: Any) -> None:
        commit(messages)
        raise RuntimeError("of the test")

    writer.commit = commit_and_fail
    return writer


@pytest.mark.parametrize("spoilt", [killed_in_the_middle, failed_at_the_end], ids=lambda one: one.__name__)
def test_rows_of_tasks_that_are_tried_again_are_there_once(
    spark: Any, broker: BrokerProcess, topic: str, tmp_path: Path, spoilt: Callable[[Path], Spoil]
) -> None:
    sink = register(spark, f"quoth_{spoilt.__name__}", spoilt(tmp_path))
    writing(spark, sink, broker.url, topic).save()
    assert sorted(os.listdir(tmp_path)) == ["0", "1"], "an attempt at each partition was lost"
    check(broker, topic)


def test_job_that_fails_leaves_nothing_and_may_be_started_again(
    spark: Any, sink: str, broker: BrokerProcess, topic: str
) -> None:
    spoilt = register(spark, "quoth_failed_for_good", failed_for_good)
    name = {"txnAppId": "app", "txnVersion": "1"}
    with pytest.raises(Exception, match="of the test"):
        writing(spark, spoilt, broker.url, topic).options(**name).save()
    check(broker, topic, 0)
    writing(spark, sink, broker.url, topic).options(**name).save()
    check(broker, topic)


def test_abort_after_a_commit_that_took_effect_removes_nothing(
    spark: Any, sink: str, broker: BrokerProcess, topic: str
) -> None:
    spoilt = register(spark, "quoth_commit_fails_afterwards", commit_fails_afterwards)
    name = {"txnAppId": "app", "txnVersion": "1"}
    with pytest.raises(Exception, match="of the test"):
        writing(spark, spoilt, broker.url, topic).options(**name).save()
    check(broker, topic)
    writing(spark, sink, broker.url, topic).options(**name).save()
    check(broker, topic)


# -- the way to the broker, and the broker ------------------------------------------------------------------


def test_commit_whose_answer_is_lost_is_known_all_the_same(
    spark: Any, sink: str, context: Context, broker: BrokerProcess, topic: str
) -> None:
    """The broker has published, the connection breaks before it says so."""
    lost: list[Published] = []

    def lose(call: Call, answer: Answer) -> bool:
        if isinstance(answer.reply, Published) and not lost:
            lost.append(answer.reply)
            return True
        return False

    def cut() -> None:
        eventually(lambda: lost, "it publishes", SPARK_S)
        wire.cut()

    with ExitStack() as stack:
        meddler = stack.enter_context(Meddler(context, broker.url))
        wire = stack.enter_context(Wire(meddler.url))
        pool = stack.enter_context(ThreadPoolExecutor())
        meddler.on_reply = lose
        cutting = pool.submit(cut)
        writing(spark, sink, wire.url, topic).save()
        cutting.result()
    assert len(lost) == 1
    assert lost[0].count == ROWS
    check(broker, topic)


def test_broker_that_is_killed_at_any_moment_of_a_job_has_its_rows_once(
    spark: Any, sink: str, own: BrokerProcess, rng: random.Random, seed: int
) -> None:
    """While tasks stage, while the driver publishes, or in between."""
    for topic in ("t0", "t1", "t2"):
        save_and_kill(writing(spark, sink, own.url, topic, 5 * ROWS), own, topic, rng.uniform(0, 0.5))
        check(own, topic, 5 * ROWS)
        print(f"QUOTH_SEED={seed}: {topic} is whole")


def save_and_kill(rows: Any, broker: BrokerProcess, topic: str, seconds: float) -> None:
    """Save rows, and kill the broker so long after the first one came there."""

    def kill() -> None:
        with quoth.connect(broker.url) as client:
            eventually(lambda: topic in client.topics(), "it stages", SPARK_S)
        pause(seconds)
        broker.kill()
        broker.restart()

    with ThreadPoolExecutor() as pool:
        killing = pool.submit(kill)
        rows.save()
        killing.result()


# -- the driver ---------------------------------------------------------------------------------------------

DRIVER = """
import pathlib, sys, time
from kit.spark.sinks import register
from kit.spark.sparks import session

url, folder = sys.argv[1], pathlib.Path(sys.argv[2])

def stopped(point):
    def spoil(writer):
        commit = writer.commit

        def commit_and_stop(messages, version):
            if point == "after":
                commit(messages, version)
            (folder / point / "there").touch()
            time.sleep(600)

        writer.commit = commit_and_stop
        return writer

    return spoil

with session("local[2]", folder / "spark") as spark:
    for point in ("before", "after"):
        files = spark.readStream.text(str(folder / "in"))
        query = (
            files.writeStream.format(register(spark, f"quoth_stopped_{point}", stopped(point)))
            .option("url", url).option("topic", point)
            .option("checkpointLocation", str(folder / point / "checkpoint"))
            .trigger(availableNow=True).start()
        )
    query.awaitTermination()
"""


def kill_at_both_points(broker: BrokerProcess, folder: Path) -> None:
    """Run a driver of two queries, and kill it and all that it has started where one of them stands before
    its commit, and the other one behind its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), broker.url, str(folder)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for point in ("before", "after"):
            eventually((folder / point / "there").exists, f"it comes to {point}", SPARK_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)


@pytest.mark.timeout(400)
def test_micro_batch_is_there_once_whether_its_driver_is_killed_before_or_after_it_commits(
    spark: Any, sink: str, own: BrokerProcess, tmp_path: Path
) -> None:
    """The next driver publishes what the one before has staged, or finds that it is published."""
    for folder in ("in", "before", "after"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in" / "rows").write_text("\n".join(f"{i:09d}" for i in range(1_000)))
    kill_at_both_points(own, tmp_path)
    with quoth.connect(own.url) as client:
        assert [client.topic(point).count for point in ("before", "after")] == [0, 1_000]
        assert client.topic("before").counters["staged_bytes"] > 0
    for point in ("before", "after"):
        checkpoint = tmp_path / point / "checkpoint"
        assert not list((checkpoint / "commits").glob("[0-9]*"))
        query = (
            spark.readStream.text(str(tmp_path / "in"))
            .writeStream.format(sink)
            .option("url", own.url)
            .option("topic", point)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(SPARK_S)
        check(own, point, 1_000)
