"""The ways in turn, and the table of them: first with each other, then with more and more tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from quoth import Client
from quoth.spark.jobs.session import Job, Summary
from quothbench.figures import Goal, Spread, rotate
from quothbench.load.rates import Payload
from quothbench.load.target import Target
from quothbench.load.topics import Topics
from quothbench.report import Column, Report, count, factor, goal_columns, spread
from quothbench.spark.figure import Figure
from quothbench.spark.rows import BATCH, fill, kept_as_parquet
from quothbench.spark.tuples import TupleSource
from quothbench.spark.ways import WAYS, Meter, Sample, Scene
from quothcli.commands.pipeline.running import performed
from quothcli.printing.output import Printer

GOALS_SIZE = 100
"""What is required is required of values of so many bytes."""
PAIRS = (
    (Figure.SOURCE, "parquet read", Goal(0.7, 0.9)),
    (Figure.SOURCE, "tuples", Goal(3.5)),
    (Figure.PARTITIONS, "source", Goal(3)),
    (Figure.SINK, "parquet write", Goal()),
    (Figure.ARCHIVE, "df.write.parquet", Goal(3)),
)
GROWING = (Figure.SOURCE, Figure.PARTITIONS)
TASKS = (1, 2, 4, 8)
TASKS_A_CORE = 2
"""So that the cores are busy to the end, though tasks do not end together."""

COLUMNS = (
    Column("way", "way", width=17),
    Column("value_bytes", "bytes", str, 5),
    Column("tasks", "tasks", str, 5),
    Column("rows_per_second", "rows/s", count, 10),
    Column("against", "against", width=16),
    Column("their_rows_per_second", "rows/s", count, 10),
    Column("ratio", "ratio", spread, 18),
    Column("processor_ratio", "by processor", spread, 18),
    *goal_columns(factor, 4),
    Column("java_nanoseconds_per_row", "java ns", count, 7),
    Column("python_nanoseconds_per_row", "python ns", count, 9),
    Column("broker_nanoseconds_per_row", "broker ns", count, 9),
)


class Done(NamedTuple):
    """A way that is measured, in so many tasks."""

    name: str
    tasks: int


Round: TypeAlias = dict[Done, Sample]


class Plan(NamedTuple):
    """What is measured, and how much. rows: of `GOALS_SIZE` bytes; of other sizes as many bytes."""

    figures: Collection[Figure]
    rows: int
    sizes: Sequence[int]
    rounds: int

    def count(self, size: int) -> int:
        """Rows of a size."""
        return max(1, self.rows * GOALS_SIZE // size)


class Bench:
    """Measures one size after the other. folder: for everything that Spark writes."""

    def __init__(self, printer: Printer, broker: Target, client: Client, folder: Path, plan: Plan) -> None:
        self._cores = os.cpu_count() or 1
        self._report = Report(printer, "spark", conditions(plan), COLUMNS)
        self._broker = broker
        self._client = client
        self._folder = folder
        self._plan = plan

    def run(self) -> None:
        """Measure what is asked for, a row for each pair, then one for each number of tasks."""
        pairs = [pair for pair in PAIRS if pair[0] in self._plan.figures]
        for size in self._plan.sizes if pairs else ():
            self._compare(size, pairs)
        if Figure.TASKS in self._plan.figures:
            self._grow(self._plan.sizes[0])

    def _compare(self, size: int, pairs: Sequence[tuple[str, str, Goal]]) -> None:
        tasks = TASKS_A_CORE * self._cores
        names = dict.fromkeys(name for pair in pairs for name in pair[:2])
        rounds = self._rounds(size, self._cores, [Done(name, tasks) for name in names])
        for name, other, goal in pairs:
            required = goal if size == GOALS_SIZE else Goal()
            self._tell(size, Done(name, tasks), Done(other, tasks), rounds, required)

    def _grow(self, size: int) -> None:
        ways = [Done(name, tasks) for name in GROWING for tasks in TASKS]
        rounds = self._rounds(size, max(TASKS), ways)
        for way in ways:
            self._tell(size, way, way._replace(tasks=TASKS[0]), rounds, Goal())

    def _rounds(self, size: int, slots: int, ways: Sequence[Done]) -> list[Round]:
        """Measure ways in turn, in a session that runs so many tasks at a time."""
        rounds: list[Round] = []
        folder = self._folder / f"{size}-bytes-{slots}-slots"  # Spark takes a comma for two folders
        folder.mkdir()
        with Topics(self._client, Payload(BATCH, size)) as topics:
            (topic,) = topics.make(1)
            fill(self._client, topic, self._plan.count(size), size)

            def job(spark: Any) -> Summary:
                spark.dataSource.register(TupleSource)
                rows = kept_as_parquet(spark, self._client, topic, folder, max(way.tasks for way in ways))
                meter = Meter(spark, self._broker, topics, folder)
                measures: list[Callable[[], Sample]] = [
                    partial(meter.measure, WAYS[way.name], Scene(spark, self._client, rows, way.tasks))
                    for way in ways
                ]
                rounds.extend(
                    dict(zip(ways, samples, strict=True)) for samples in rotate(measures, self._plan.rounds)
                )
                return Summary([], {})

            settings = [("spark.local.dir", str(folder)), ("spark.sql.warehouse.dir", str(folder))]
            performed(
                "bench spark",
                Job(job, "rows of the table that were printed stand"),
                f"local[{slots}]",
                settings,
            )
        return rounds

    def _tell(self, size: int, way: Done, other: Done, rounds: Sequence[Round], goal: Goal) -> None:
        rows = self._plan.count(size)
        samples = [one[way] for one in rounds]
        seconds = median(one.seconds for one in samples)
        costs = [_median(part) for part in zip(*(one[1:] for one in samples), strict=True)]
        self._report.row(
            way.name,
            size,
            way.tasks,
            rows / seconds,
            f"{other.tasks} task" if other.name == way.name else other.name,
            rows / median(one[other].seconds for one in rounds),
            Spread.of([one[other].seconds / one[way].seconds for one in rounds]),
            _by_processor([(one[way].processor, one[other].processor) for one in rounds]),
            *goal,
            *(1e9 * one / rows if one else None for one in costs),
        )


def _median(values: Sequence[float | None]) -> float | None:
    """The median, None if one of the values is unknown."""
    known = [one for one in values if one is not None]
    return median(known) if len(known) == len(values) else None


def _by_processor(used: Sequence[tuple[float | None, float | None]]) -> Spread | None:
    """How many times the processor time of a way the other one takes; None where it is unknown."""
    known = [(ours, theirs) for ours, theirs in used if ours and theirs]
    return Spread.of([theirs / ours for ours, theirs in known]) if len(known) == len(used) else None


def conditions(plan: Plan) -> dict[str, Any]:
    """What the figures depend on beside the machine."""
    return {
        "rows": ", ".join(f"{plan.count(size):,} of {size} B" for size in plan.sizes),
        "batches": f"{BATCH:,} random values without keys",
        "rounds": plan.rounds,
        "durability": "sink and archive: on the disk before they count; Parquet of Spark: not synced",
        "processor": "time of a row, all cores together: Java, its Python workers, the broker; the ratio by "
        "processor compares these sums, which other programs on the machine disturb less than the clock",
        "spark": ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow")),
    }
