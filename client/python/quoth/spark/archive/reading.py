"""Reading an archive by its manifest: as it was after one commit, whatever is written or merged meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from quoth.moment import Moment, cursor
from quoth.selection import Selection
from quoth.spark.archive.manifest import ArchivedFile
from quoth.spark.archive.store import local_path, read_manifest
from quoth.steps import last_before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_SCHEMA = (
    "offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, ordinal long, topic string, day date"
)


def archived_files(
    archive: str | Path,
    topics: str | Iterable[str] | None = None,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
) -> list[str]:
    """The paths of the files with the records of some topics, each log's in the order of its pointers.

    archive: its folder. topics: names and patterns, all by default. since, until: only files that may hold
    records of that time. The files stay for as long as compaction was told to keep what it replaces, a
    quarter of an hour by default. Raises FileNotFoundError if there is no archive, or `Damaged`.
    """
    root = local_path(archive)
    selection = None if topics is None else Selection(topics)
    after, last = cursor(None, since, 0), last_before(until)

    def wanted(file: ArchivedFile) -> bool:
        return file.last > after and file.first <= last

    def meant(topic: str) -> bool:
        return selection is None or topic in selection.names or selection.matches(topic)

    return [str(root / file.name) for file in read_manifest(root).files(meant) if wanted(file)]


def read_archive(
    spark: SparkSession,
    archive: str | Path,
    topics: str | Iterable[str] | None = None,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
) -> DataFrame:
    """The archived records of some topics, with the columns of the Spark source, `ordinal` and `day`.

    since is included, until is not. Other arguments and errors as for `archived_files`.
    """
    files = archived_files(archive, topics, since=since, until=until)
    if not files:
        return spark.createDataFrame([], SPARK_SCHEMA)
    reader = spark.read.schema(SPARK_SCHEMA).option("basePath", str(local_path(archive)))
    frame = reader.parquet(*files)
    if since is not None:
        frame = frame.where(frame["offset"] > cursor(None, since, 0))
    return frame if until is None else frame.where(frame["offset"] <= last_before(until))
