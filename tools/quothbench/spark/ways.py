"""The ways of rows, each as an application would write it, and what one of them takes."""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from quoth import Client
from quoth.spark import read_topic
from quoth.spark.archive.archiver import Policy, TopicArchiver
from quoth.spark.archive.parquet import COLUMNS
from quoth.spark.source.range_reader import TopicRange
from quoth.spark.source.ranges import foreach_partition, topic_ranges
from quoth.spark.workers import SparkWorkers
from quothbench.load.servers import Target, cpu_seconds, family
from quothbench.load.topics import BenchTopics
from quothbench.spark.plan import BATCH
from quothcli.printing.progress import progress
from quothwire.errors import error


class Rows(NamedTuple):
    """The same rows in a topic and in Parquet. total: their number. bytes: stored ones of the topic."""

    url: str
    topic: str
    parquet: str
    total: int
    bytes: int

    def check(self, count: int, where: str) -> None:
        """Raise an error if some rows are missing."""
        if count != self.total:
            raise error("internal", f"{where}: {count:,} rows instead of {self.total:,}")


def fill(client: Client, topic: str, count: int, size: int) -> None:
    """Store random values of so many bytes: Parquet would keep equal ones once."""
    drawn = random.Random(1)
    with progress("storing rows") as advance:
        for begin in range(0, count, BATCH):
            records = min(BATCH, count - begin)
            heap = drawn.randbytes(records * size)
            client.publish(topic, [heap[at : at + size] for at in range(0, len(heap), size)])
            advance(records, len(heap))


def copied_to_parquet(spark: Any, client: Client, topic: str, folder: Path, tasks: int) -> Rows:
    """Copy a topic to Parquet, one file for each task."""
    counted = client.count(topic)
    rows = Rows(client.url, topic, str(folder / "rows.parquet"), counted.records, counted.bytes)
    read_topic(spark, topic, url=client.url, parts=tasks).write.parquet(rows.parquet)
    rows.check(spark.read.parquet(rows.parquet).count(), "Parquet")
    return rows


class Output(NamedTuple):
    """An empty folder and an empty topic for a way that writes. They are removed afterwards."""

    folder: Path
    topic: str


class Scene(NamedTuple):
    """The surroundings of a way. tasks: the number of parts of the rows."""

    spark: Any
    client: Client
    rows: Rows
    tasks: int

    @property
    def topic(self) -> Any:
        """Return the topic as a table."""
        return read_topic(self.spark, self.rows.topic, url=self.rows.url, parts=self.tasks)

    @property
    def parquet(self) -> Any:
        """Return the Parquet files as a table."""
        return self.spark.read.parquet(self.rows.parquet)


def source(scene: Scene, _: Output) -> None:
    """Read the topic as a table."""
    _drain(scene.topic)


def parquet_read(scene: Scene, _: Output) -> None:
    """Read the same table from Parquet."""
    _drain(scene.parquet)


def partitions(scene: Scene, _: Output) -> None:
    """Read the topic as Arrow in the workers; nothing goes on to Java."""
    ranges = topic_ranges(scene.spark, scene.rows.topic, url=scene.rows.url, parts=scene.tasks)
    foreach_partition(ranges, _read_all)


def sink(scene: Scene, output: Output) -> None:
    """Write rows of Parquet into a topic, exactly once."""
    writer = scene.parquet.select("key", "value").write.format("quoth")
    writer.options(url=scene.rows.url, topic=output.topic).mode("append").save()
    scene.rows.check(scene.client.topic(output.topic).count, "the sink")


def parquet_write(scene: Scene, output: Output) -> None:
    """Write the same rows of Parquet into Parquet."""
    scene.parquet.select("key", "value").write.parquet(str(output.folder / "parquet"))


def archive(scene: Scene, output: Output) -> None:
    """Copy the topic into an archive."""
    policy = Policy(fail_on_loss=True, file_bytes=scene.rows.bytes // scene.tasks + 1)
    done = TopicArchiver(scene.client, output.folder, SparkWorkers(scene.spark), scene.rows.topic, policy)
    done.run()
    scene.rows.check(done.tally.records, "the archive")


def topic_to_parquet(scene: Scene, output: Output) -> None:
    """Copy the same columns of the topic into Parquet, by Spark."""
    frame = read_topic(scene.spark, scene.rows.topic, url=scene.rows.url, parts=scene.tasks, columns=COLUMNS)
    frame.write.parquet(str(output.folder / "parquet"))


Way = Callable[[Scene, Output], None]
WAYS: dict[str, Way] = {
    "source": source,
    "parquet read": parquet_read,
    "foreach_partition": partitions,
    "sink": sink,
    "parquet write": parquet_write,
    "archive": archive,
    "df.write.parquet": topic_to_parquet,
}


class WaySample(NamedTuple):
    """The time of a way: seconds, and processor seconds in Java, in its Python workers, in the broker.

    None where it is unknown: the broker's, if that is on another machine.
    """

    seconds: float
    java: float | None
    python: float | None
    broker: float | None

    @property
    def processor(self) -> float | None:
        """Return the seconds of all processors together; None if one of them is unknown."""
        parts = [one for one in self[1:] if one is not None]
        return sum(parts) if len(parts) == len(self[1:]) else None


class Meter:
    """Measures ways, each with an output of its own below a folder."""

    def __init__(self, spark: Any, broker: Target, topics: BenchTopics, folder: Path) -> None:
        self._java = spark.sparkContext._gateway.proc.pid
        self._broker = broker
        self._topics = topics
        self._folder = folder

    def measure(self, way: Way, scene: Scene) -> WaySample:
        """Execute a way once."""
        topics = self._topics.make()
        with TemporaryDirectory(dir=self._folder) as folder:
            os.sync()  # or data of other ways would be written meanwhile
            workers = self._used_by_workers()
            before = self._used()
            way(scene, Output(Path(folder), topics[0]))
            after = self._used()
            python = spent(workers, self._used_by_workers())
        self._topics.delete(topics)
        seconds, java, broker = map(_difference, after, before)
        assert seconds is not None
        return WaySample(seconds, java, None if java is None else python, broker)

    def _used(self) -> tuple[float, float | None, float | None]:
        """Return the time now, and the processor seconds that Java and the broker have used so far."""
        return time.perf_counter(), cpu_seconds(self._java), self._broker.cpu()

    def _used_by_workers(self) -> dict[int, float]:
        """Return the processor seconds that each of Spark's Python processes has used so far."""
        return {pid: cpu_seconds(pid) or 0.0 for pid in family(self._java)[1:]}


def spent(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the seconds that processes have used meanwhile, without those that have ended meanwhile.

    Spark's daemon does not wait for its workers, so the system counts their time nowhere once they end.
    """
    return sum(used - before.get(pid, 0.0) for pid, used in after.items())


def _difference(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then


def _read_all(_: TopicRange, batches: Iterator[Any]) -> None:
    deque(batches, 0)


def _drain(frame: Any) -> None:
    """Let all rows come into Spark, and go nowhere else."""
    frame.write.format("noop").mode("overwrite").save()
