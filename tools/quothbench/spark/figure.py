"""What can be asked for, known without Spark."""

from __future__ import annotations

from enum import StrEnum


class Figure(StrEnum):
    """The rows of the table: of ways that are compared, and of more and more tasks."""

    SOURCE = "source"
    PARTITIONS = "foreach_partition"
    SINK = "sink"
    ARCHIVE = "archive"
    TASKS = "tasks"
