"""The plan: the ways that are compared, and how much they do. It is known without Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import NamedTuple

from quothbench.figures import Goal
from quothbench.report import ReportColumn, count, factor, goal_columns, spread

BATCH = 1_000
"""Rows of a stored batch, as a producer makes them."""
GOALS_SIZE = 100
"""Bytes of the values for which there are goals."""


class Figure(StrEnum):
    """The rows of the table: pairs of ways, and more and more tasks."""

    SOURCE = "source"
    PARTITIONS = "foreach_partition"
    SINK = "sink"
    ARCHIVE = "archive"
    TASKS = "tasks"


PAIRS = (
    (Figure.SOURCE, "parquet read", Goal(0.7, 0.9)),
    (Figure.PARTITIONS, "source", Goal(3)),
    (Figure.SINK, "parquet write", Goal()),
    (Figure.ARCHIVE, "df.write.parquet", Goal(3)),
)
GROWING = (Figure.SOURCE, Figure.PARTITIONS)
TASKS = (1, 2, 4, 8)
TASKS_A_CORE = 2
"""So that the cores are busy to the end, though tasks do not end together."""

COLUMNS = (
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


class SparkPlan(NamedTuple):
    """The figures, and how much is measured. rows: of `GOALS_SIZE` bytes; of other sizes as many bytes."""

    figures: Collection[Figure]
    rows: int
    sizes: Sequence[int]
    rounds: int

    def count(self, size: int) -> int:
        """Return the number of rows of a size."""
        return max(1, self.rows * GOALS_SIZE // size)
