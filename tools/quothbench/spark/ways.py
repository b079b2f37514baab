"""The ways that rows go, each as somebody would write it down, and what one of them took."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from quoth import Client
from quoth.spark import read_topic
from quoth.spark.archive.archiver import Archiver, Policy
from quoth.spark.archive.parquet import COLUMNS
from quoth.spark.source.range_reader import TopicRange
from quoth.spark.source.ranges import foreach_partition, topic_ranges
from quoth.spark.workers import OnSpark
from quothbench.load.clients import cpu_seconds, family
from quothbench.load.target import Target
from quothbench.load.topics import Topics
from quothbench.spark.rows import Rows
from quothbench.spark.tuples import TupleSource


class Place(NamedTuple):
    """Where a way may write: an empty folder and an empty topic, which are gone afterwards."""

    folder: Path
    topic: str


class Scene(NamedTuple):
    """What every way finds. tasks: in which it divides the rows."""

    spark: Any
    client: Client
    rows: Rows
    tasks: int


def source(scene: Scene, _: Place) -> None:
    """The topic as a table."""
    _drain(read_topic(scene.spark, scene.rows.topic, url=scene.rows.url, parts=scene.tasks))


def tuples(scene: Scene, _: Place) -> None:
    """The same table of a source that makes tuples."""
    options = {"url": scene.rows.url, "subscribe": scene.rows.topic, "minPartitions": str(scene.tasks)}
    _drain(scene.spark.read.format(TupleSource.name()).options(**options).load())


def parquet_read(scene: Scene, _: Place) -> None:
    """The same table of Parquet."""
    _drain(scene.spark.read.parquet(scene.rows.parquet))


def partitions(scene: Scene, _: Place) -> None:
    """The topic as Arrow in the workers, from where nothing goes on to Java."""
    ranges = topic_ranges(scene.spark, scene.rows.topic, url=scene.rows.url, parts=scene.tasks)
    foreach_partition(ranges, _look_at_all)


def sink(scene: Scene, place: Place) -> None:
    """Rows of Parquet into a topic, exactly once."""
    _to_write(scene).write.format("quoth").options(url=scene.rows.url, topic=place.topic).mode(
        "append"
    ).save()
    scene.rows.check(scene.client.topic(place.topic).count, "the sink")


def parquet_write(scene: Scene, place: Place) -> None:
    """The same rows of Parquet into Parquet."""
    _to_write(scene).write.parquet(str(place.folder / "parquet"))


def archive(scene: Scene, place: Place) -> None:
    """The topic into an archive."""
    policy = Policy(fail_on_loss=True, file_bytes=scene.rows.bytes // scene.tasks + 1)
    done = Archiver(scene.client, place.folder, OnSpark(scene.spark), scene.rows.topic, policy)
    done.run()
    scene.rows.check(done.tally.records, "the archive")


def topic_to_parquet(scene: Scene, place: Place) -> None:
    """The same columns of the topic into Parquet, by Spark."""
    frame = read_topic(scene.spark, scene.rows.topic, url=scene.rows.url, parts=scene.tasks, columns=COLUMNS)
    frame.write.parquet(str(place.folder / "parquet"))


Way = Callable[[Scene, Place], None]
WAYS: dict[str, Way] = {
    "source": source,
    "tuples": tuples,
    "parquet read": parquet_read,
    "foreach_partition": partitions,
    "sink": sink,
    "parquet write": parquet_write,
    "archive": archive,
    "df.write.parquet": topic_to_parquet,
}


class Sample(NamedTuple):
    """What a way took: seconds, and those of the processors in Java, in its Python workers, in the broker.

    None where it is unknown: the broker's, if that is on another machine.
    """

    seconds: float
    java: float | None
    python: float | None
    broker: float | None

    @property
    def processor(self) -> float | None:
        """Seconds of all processors together; None if one of them is unknown."""
        parts = [one for one in self[1:] if one is not None]
        return sum(parts) if len(parts) == len(self[1:]) else None


class Meter:
    """Measures ways, each in a place of its own. folder: where those are made."""

    def __init__(self, spark: Any, broker: Target, topics: Topics, folder: Path) -> None:
        self._java = spark.sparkContext._gateway.proc.pid
        self._broker = broker
        self._topics = topics
        self._folder = folder

    def measure(self, way: Way, scene: Scene) -> Sample:
        """Do it once."""
        topics = self._topics.make(1)
        with TemporaryDirectory(dir=self._folder) as folder:
            os.sync()  # what others did not wait for would be written meanwhile
            workers = self._used_by_workers()
            before = self._used()
            way(scene, Place(Path(folder), topics[0]))
            after = self._used()
            python = spent(workers, self._used_by_workers())
        self._topics.delete(topics)
        seconds, java, broker = map(_difference, after, before)
        assert seconds is not None
        return Sample(seconds, java, None if java is None else python, broker)

    def _used(self) -> tuple[float, float | None, float | None]:
        """The time now, and the processor time that Java and the broker have used so far."""
        return time.perf_counter(), cpu_seconds(self._java), self._broker.cpu()

    def _used_by_workers(self) -> dict[int, float]:
        """The processor time that each of Spark's Python processes has used so far."""
        return {pid: cpu_seconds(pid) or 0.0 for pid in family(self._java)[1:]}


def spent(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the seconds that processes have used meanwhile, without those that have ended meanwhile.

    Spark's daemon does not wait for its workers, so the system counts what they used nowhere once they end.
    """
    return sum(used - before.get(pid, 0.0) for pid, used in after.items())


def _difference(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then


def _look_at_all(_: TopicRange, batches: Iterator[Any]) -> None:
    deque(batches, 0)


def _drain(frame: Any) -> None:
    """Let all rows come into Spark, and nowhere else."""
    frame.write.format("noop").mode("overwrite").save()


def _to_write(scene: Scene) -> Any:
    return scene.spark.read.parquet(scene.rows.parquet).select("key", "value")
