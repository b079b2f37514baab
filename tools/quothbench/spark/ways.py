"""The ways of rows, each as an application would write it, and their comparison in turn."""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

from quoth import Client
from quoth.spark import read_topic
from quoth.spark.archive.archiver import Policy, TopicArchiver
from quoth.spark.archive.parquet import COLUMNS
from quoth.spark.jobs.session import Job, JobSummary
from quoth.spark.source.range_reader import TopicRange
from quoth.spark.source.ranges import foreach_partition, topic_ranges
from quoth.spark.workers import SparkWorkers
from quothbench.figures import NO_GOAL, Goal, Spread, rotate
from quothbench.load.servers import Target, cpu_seconds, difference, family
from quothbench.load.topics import BenchTopics
from quothbench.report import Report, ReportColumn, count, factor, goal_columns, spread
from quothcli.commands.pipeline.running import performed
from quothcli.printing.progress import progress
from quothwire.errors import error

BATCH = 1_000
"""Rows of a stored batch, as a producer makes them."""
GOALS_SIZE = 100
"""Bytes of the values for which there are goals."""
PAIRS = (
    ("source", "parquet read", Goal(0.7, 0.9)),
    ("foreach_partition", "source", Goal(3)),
    ("sink", "parquet write", NO_GOAL),
    ("archive", "df.write.parquet", Goal(3)),
)
"""Names of `WAYS` that are compared, and the goal of the ratio."""
TASKS_A_CORE = 2
"""So that the cores are busy to the end, though tasks do not end together."""

REPORTED = (
    ReportColumn("way", "way", width=17),
    ReportColumn("value_bytes", "bytes", str, 5),
    ReportColumn("tasks", "tasks", str, 5),
    ReportColumn("rows_per_second", "rows/s", count, 10),
    ReportColumn("against", "against", width=16),
    ReportColumn("their_rows_per_second", "rows/s", count, 10),
    ReportColumn("ratio", "ratio", spread, 18),
    ReportColumn("processor_ratio", "by processor", spread, 18),
    *goal_columns(factor, 4),
    ReportColumn("java_nanoseconds_per_row", "java ns", count, 7),
    ReportColumn("python_nanoseconds_per_row", "python ns", count, 9),
    ReportColumn("broker_nanoseconds_per_row", "broker ns", count, 9),
)


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
        seconds, java, broker = map(difference, after, before)
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


def _read_all(_: TopicRange, batches: Iterator[Any]) -> None:
    deque(batches, 0)


def _drain(frame: Any) -> None:
    """Let all rows come into Spark, and go nowhere else."""
    frame.write.format("noop").mode("overwrite").save()


class SparkPlan(NamedTuple):
    """The ways to compare, and how much they do.

    rows: of `GOALS_SIZE` bytes; of other sizes as many bytes.
    """

    figures: Collection[str]
    rows: int
    sizes: Sequence[int]
    rounds: int

    def count(self, size: int) -> int:
        """Return the number of rows of a size."""
        return max(1, self.rows * GOALS_SIZE // size)


Round: TypeAlias = dict[str, WaySample]


class SparkBench(NamedTuple):
    """Measures one size after the other. folder: for everything that Spark writes."""

    report: Report
    broker: Target
    client: Client
    folder: Path
    plan: SparkPlan

    def run(self) -> None:
        """Measure what is asked for, a row for each pair and size."""
        cores = os.cpu_count() or 1
        pairs = [pair for pair in PAIRS if pair[0] in self.plan.figures]
        names = list(dict.fromkeys(name for pair in pairs for name in pair[:2]))
        for size in self.plan.sizes:
            rounds = self._rounds(size, cores, names)
            for name, other, goal in pairs:
                required = goal if size == GOALS_SIZE else NO_GOAL
                self._row(size, cores * TASKS_A_CORE, name, other, rounds, required)

    def _rounds(self, size: int, cores: int, ways: Sequence[str]) -> list[Round]:
        """Measure ways in turn, in a session of their own."""
        rounds: list[Round] = []
        folder = self.folder / f"{size}-bytes"
        folder.mkdir()
        with BenchTopics(self.client) as topics:
            (topic,) = topics.make()
            fill(self.client, topic, self.plan.count(size), size)

            def job(spark: Any) -> JobSummary:
                tasks = cores * TASKS_A_CORE
                rows = copied_to_parquet(spark, self.client, topic, folder, tasks)
                scene = Scene(spark, self.client, rows, tasks)
                meter = Meter(spark, self.broker, topics, folder)
                measures = [partial(meter.measure, WAYS[name], scene) for name in ways]
                measured = rotate(measures, self.plan.rounds)
                rounds.extend(dict(zip(ways, samples, strict=True)) for samples in measured)
                return JobSummary([], {})

            settings = [("spark.local.dir", str(folder)), ("spark.sql.warehouse.dir", str(folder))]
            printed_stay = Job(job, "rows of the table that were printed stand")
            performed("bench spark", printed_stay, f"local[{cores}]", settings)
        return rounds

    def _row(self, size: int, tasks: int, name: str, other: str, rounds: Sequence[Round], goal: Goal) -> None:
        rows = self.plan.count(size)
        samples = [(one[other], one[name]) for one in rounds]
        their_seconds, seconds = (median(one.seconds for one in side) for side in zip(*samples, strict=True))
        costs = [_median(part) for part in zip(*(ours[1:] for _, ours in samples), strict=True)]
        self.report.row(
            name,
            size,
            tasks,
            rows / seconds,
            other,
            rows / their_seconds,
            Spread.of_ratios([(ours.seconds, theirs.seconds) for theirs, ours in samples]),
            _by_processor([(ours.processor, theirs.processor) for theirs, ours in samples]),
            *goal,
            *(1e9 * one / rows if one else None for one in costs),
        )


def _median(values: Sequence[float | None]) -> float | None:
    """Return the median, None if one of the values is unknown."""
    known = [one for one in values if one is not None]
    return median(known) if len(known) == len(values) else None


def _by_processor(used: Sequence[tuple[float | None, float | None]]) -> Spread | None:
    """Return their processor time divided by ours; None where one of them is unknown."""
    known = [(ours, theirs) for ours, theirs in used if ours and theirs]
    return Spread.of_ratios(known) if len(known) == len(used) else None


def conditions(plan: SparkPlan) -> dict[str, Any]:
    """Return the conditions of the figures beside the machine."""
    return {
        "rows": ", ".join(f"{plan.count(size):,} of {size} B" for size in plan.sizes),
        "batches": f"{BATCH:,} random values without keys",
        "rounds": plan.rounds,
        "durability": "sink and archive: on the disk before they count; Parquet of Spark: not synced",
        "processor": "time of a row, all cores together: Java, its Python workers, the broker; the ratio by "
        "processor compares these sums, which other programs on the machine disturb less than the clock",
        "spark": ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow")),
    }
