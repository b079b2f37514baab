"""The comparison: ways in turn, first in pairs, then with more and more tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from quoth import Client
from quoth.spark.jobs.session import Job, JobSummary
from quothbench.figures import Goal, Spread, rotate
from quothbench.load.rates import Payload
from quothbench.load.servers import Target
from quothbench.load.topics import BenchTopics
from quothbench.report import Report
from quothbench.spark.plan import BATCH, GOALS_SIZE, GROWING, PAIRS, TASKS, TASKS_A_CORE, Figure, SparkPlan
from quothbench.spark.ways import WAYS, Meter, Scene, WaySample, copied_to_parquet, fill
from quothcli.commands.pipeline.running import performed


class Measured(NamedTuple):
    """A way that is measured, in so many tasks."""

    name: str
    tasks: int


Round: TypeAlias = dict[Measured, WaySample]


class SparkBench(NamedTuple):
    """Measures one size after the other. folder: for everything that Spark writes."""

    report: Report
    broker: Target
    client: Client
    folder: Path
    plan: SparkPlan

    def run(self) -> None:
        """Measure what is asked for, a row for each pair and each number of tasks."""
        cores = os.cpu_count() or 1
        pairs = [pair for pair in PAIRS if pair[0] in self.plan.figures]
        for size in self.plan.sizes if pairs else ():
            tasks = TASKS_A_CORE * cores
            names = dict.fromkeys(name for pair in pairs for name in pair[:2])
            rounds = self._rounds(size, cores, [Measured(name, tasks) for name in names])
            for name, other, goal in pairs:
                required = goal if size == GOALS_SIZE else Goal()
                self._row(size, Measured(name, tasks), Measured(other, tasks), rounds, required)
        if Figure.TASKS in self.plan.figures:
            size = self.plan.sizes[0]
            ways = [Measured(name, tasks) for name in GROWING for tasks in TASKS]
            rounds = self._rounds(size, max(TASKS), ways)
            for way in ways:
                self._row(size, way, way._replace(tasks=TASKS[0]), rounds, Goal())

    def _rounds(self, size: int, slots: int, ways: Sequence[Measured]) -> list[Round]:
        """Measure ways in turn, in a session that runs so many tasks at a time."""
        rounds: list[Round] = []
        folder = self.folder / f"{size}-bytes-{slots}-slots"  # Spark takes a comma for two folders
        folder.mkdir()
        with BenchTopics(self.client, Payload(BATCH, size)) as topics:
            (topic,) = topics.make()
            fill(self.client, topic, self.plan.count(size), size)

            def job(spark: Any) -> JobSummary:
                rows = copied_to_parquet(spark, self.client, topic, folder, max(way.tasks for way in ways))
                meter = Meter(spark, self.broker, topics, folder)
                measures: list[Callable[[], WaySample]] = [
                    partial(meter.measure, WAYS[way.name], Scene(spark, self.client, rows, way.tasks))
                    for way in ways
                ]
                measured = rotate(measures, self.plan.rounds)
                rounds.extend(dict(zip(ways, samples, strict=True)) for samples in measured)
                return JobSummary([], {})

            settings = [("spark.local.dir", str(folder)), ("spark.sql.warehouse.dir", str(folder))]
            printed_stay = Job(job, "rows of the table that were printed stand")
            performed("bench spark", printed_stay, f"local[{slots}]", settings)
        return rounds

    def _row(self, size: int, way: Measured, other: Measured, rounds: Sequence[Round], goal: Goal) -> None:
        rows = self.plan.count(size)
        samples = [(one[other], one[way]) for one in rounds]
        their_seconds, seconds = (median(one.seconds for one in side) for side in zip(*samples, strict=True))
        costs = [_median(part) for part in zip(*(ours[1:] for _, ours in samples), strict=True)]
        self.report.row(
            way.name,
            size,
            way.tasks,
            rows / seconds,
            f"{other.tasks} task" if other.name == way.name else other.name,
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
