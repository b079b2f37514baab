"""Faults of the sink: the topic has all rows once, whichever process is killed at any moment."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource

import quoth
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler, Wire
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.scale import times
from kit.spark.sparks import JOB_S
from quoth import Client
from quoth.spark.sink.sink import BatchWriter, StreamWriter, parse
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Published

ROWS = 60_000
"""Of some 50 bytes: three batches a partition."""
Act = Callable[[], object]
Spoil = Callable[[Any], Any]
"""Makes a worse writer of a writer of Quoth."""

pytestmark = pytest.mark.usefixtures("by_value")


def register(spark: Any, spoil: Spoil) -> str:
    """Register a format that writes as `quoth` does, with spoilt writers; returns its name."""

    class Sink(DataSource):
        """The format."""

        @classmethod
        def name(cls) -> str:
            return "quoth_spoilt"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return spoil(BatchWriter(parse(self.options, schema, overwrite, stream=False)))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return spoil(StreamWriter(parse(self.options, schema, overwrite, stream=True)))

    spark.dataSource.register(Sink)
    return Sink.name()


def nothing(*_: Any) -> None:
    """Leave all as it is."""


def fail() -> None:
    """Fail."""
    raise RuntimeError("of the test")


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def spoilt(method: str, *, before: Act = nothing, after: Act = nothing, aborts: bool = True) -> Spoil:
    """Act before or after a method of the writer. aborts: False as where a driver dies."""

    def spoil(writer: Any) -> Any:
        call = getattr(writer, method)

        def act(*arguments: Any) -> Any:
            before()
            result = call(*arguments)
            after()
            return result

        setattr(writer, method, act)
        if not aborts:
            writer.abort = nothing
        return writer

    return spoil


def check(broker: BrokerProcess, topic: str, count: int = ROWS) -> None:
    """The topic has each of the rows once, and nothing is staged any more."""
    with quoth.connect(broker.url, timeout=DEADLINE_S) as client:
        values = [int(value[:9]) for batch in client.batches(topic) for value in batch.values]
        assert len(values) == count
        assert sorted(values) == list(range(count))
        assert client.topic(topic).counters["staged_bytes"] == 0


def writing(spark: Any, url: str, topic: str, count: int = ROWS, name: str = "quoth") -> Any:
    """The writing of numbers to a topic. name: of the format."""
    rows = spark.range(count, numPartitions=2).selectExpr("RPAD(LPAD(id, 9, '0'), 50, '.') AS value")
    return rows.write.format(name).option("url", url).option("topic", topic).mode("append")


def killed_in_the_middle(marks: Path) -> Spoil:
    """The first attempt at each partition is killed once it has taken two thirds of its rows."""

    def spoil(writer: Any) -> Any:
        write = writer.write

        def write_some(rows: Iterator[Any]) -> Any:
            def some() -> Iterator[Any]:
                for number, batch in enumerate(rows):
                    if number == 2 and is_first_attempt(marks):
                        die()
                    yield batch

            return write(some())

        writer.write = write_some
        return writer

    return spoil


def failed_at_the_end(marks: Path) -> Spoil:
    """The first attempt at each partition fails after everything is staged."""
    return spoilt("write", after=lambda: fail() if is_first_attempt(marks) else None)


def is_first_attempt(marks: Path) -> bool:
    """True for the first attempt at a partition, which leaves a mark."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber():
        return False
    (marks / str(context.partitionId())).touch()
    return True


def fail_in_one_partition() -> None:
    """Fail after the rows of one partition are staged, in each attempt."""
    if TaskContext.get().partitionId() == 1:  # type: ignore[union-attr]
        fail()


@pytest.mark.parametrize("spoil", [killed_in_the_middle, failed_at_the_end])
def test_rows_of_tasks_that_are_tried_again_are_there_once(
    spark: Any, broker: BrokerProcess, topic: str, tmp_path: Path, spoil: Callable[[Path], Spoil]
) -> None:
    writing(spark, broker.url, topic, name=register(spark, spoil(tmp_path))).save()
    assert sorted(os.listdir(tmp_path)) == ["0", "1"], "an attempt at each partition was lost"
    check(broker, topic)


@pytest.mark.parametrize(
    ("spoil", "count"),
    [(spoilt("write", after=fail_in_one_partition), 0), (spoilt("commit", after=fail), ROWS)],
    ids=["of a task", "after the commit"],
)
def test_failed_job_stores_no_row_or_all_and_may_be_started_again(
    spark: Any, broker: BrokerProcess, topic: str, spoil: Spoil, count: int
) -> None:
    """The abort after a commit that took effect removes nothing."""
    named = {"txnAppId": "app", "txnVersion": "1"}
    with pytest.raises(Exception, match="of the test"):
        writing(spark, broker.url, topic, name=register(spark, spoil)).options(**named).save()
    check(broker, topic, count)
    writing(spark, broker.url, topic).options(**named).save()
    check(broker, topic)


def test_commit_whose_answer_is_lost_is_recognised(
    spark: Any, context: Context, broker: BrokerProcess, topic: str
) -> None:
    """The broker has published, the connection breaks before it says so."""
    lost: list[Published] = []

    def lose(call: Call, answer: Answer) -> bool:
        if isinstance(answer.reply, Published) and not lost:
            lost.append(answer.reply)
            return True
        return False

    def cut() -> None:
        eventually(lambda: lost, "it publishes", JOB_S)
        wire.cut()

    with ExitStack() as stack:
        meddler = stack.enter_context(Meddler(context, broker.url))
        wire = stack.enter_context(Wire(meddler.url))
        pool = stack.enter_context(ThreadPoolExecutor())
        meddler.on_reply = lose
        cutting = pool.submit(cut)
        writing(spark, wire.url, topic).save()
        cutting.result()
    assert len(lost) == 1
    assert lost[0].count == ROWS
    check(broker, topic)


def test_rows_of_a_job_are_stored_once_whenever_its_broker_is_killed(
    spark: Any, own_broker: BrokerProcess, rng: random.Random
) -> None:
    """While tasks stage, while the driver publishes, or in between."""
    for number in range(times(1, 3)):
        rows = writing(spark, own_broker.url, f"t{number}", 5 * ROWS)
        save_and_kill(rows, own_broker, f"t{number}", rng.uniform(0, 0.5))
        check(own_broker, f"t{number}", 5 * ROWS)


def save_and_kill(rows: Any, broker: BrokerProcess, topic: str, seconds: float) -> None:
    """Save rows, and kill the broker so long after the first one came there."""

    def kill() -> None:
        with quoth.connect(broker.url) as client:
            eventually(lambda: topic in client.topics(), "it stages", JOB_S)
        pause(seconds)
        broker.kill()
        broker.restart()

    with ThreadPoolExecutor() as pool:
        killing = pool.submit(kill)
        rows.save()
        killing.result()


@pytest.mark.parametrize(
    ("spoil", "count"),
    [
        (spoilt("commit", before=die, aborts=False), 0),
        (spoilt("commit", after=die, aborts=False), 1_000),
    ],
    ids=["before", "after"],
)
def test_micro_batch_is_there_once_whether_its_driver_is_killed_before_or_after_it_commits(
    spark: Any, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path, spoil: Spoil, count: int
) -> None:
    """The next run publishes what the one before has staged, or finds that it is published."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows").write_text("\n".join(f"{i:09d}" for i in range(1_000)))

    def run(name: str) -> None:
        rows = spark.readStream.text(str(tmp_path / "in")).writeStream.format(name)
        rows = rows.option("url", broker.url).option("topic", topic)
        rows = rows.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert rows.trigger(availableNow=True).start().awaitTermination(JOB_S)

    with pytest.raises(Exception, match=r"EOF|crashed|exited"):
        run(register(spark, spoil))
    assert client.topic(topic).count == count
    assert bool(client.topic(topic).counters["staged_bytes"]) == (not count)
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    run("quoth")
    check(broker, topic, 1_000)
