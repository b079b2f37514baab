"""Reads an archive by its manifest: as it was after one commit, through writes and merges."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from quoth.merging.selection import Selection
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, ArchiveManifest
from quoth.spark.archive.naming import name_in, topic_folder
from quoth.spark.archive.store import read_manifest
from quoth.spark.atomic_files import local_path
from quoth.timestamps import Timestamp, cursor, last_before
from quothwire.errors import error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOCAL = "file://"
"""The scheme of paths for Spark, because a cluster may have another default file system."""
_GLOB = "__globPaths__"
"""Spark's option for patterns in paths."""
SPARK_SCHEMA = (
    "offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, ordinal long, topic string, day date"
)


def archived_files(
    archive: str | Path,
    topics: str | Iterable[str] | None = None,
    *,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
) -> list[str]:
    """The paths of the files with the records of some topics, each log's in the order of its pointers.

    archive: its folder. topics: names and patterns, all by default. since, until: only files that may hold
    records of that time. Replaced files stay for the keep_replaced of compactions, a quarter of an hour by
    default. Raises FileNotFoundError if there is no archive, `NotFound` ``unknown_topic`` for a name that it
    does not have, ``unsupported_version`` or `Damaged`.
    """
    root = local_path(archive)
    return [str(root / file.name) for _, file in _selected(root, topics, since, until)]


def read_archive(
    spark: SparkSession,
    archive: str | Path,
    topics: str | Iterable[str] | None = None,
    *,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
) -> DataFrame:
    """Read the archived records of some topics, with the columns of the Spark source, `ordinal` and `day`.

    since is included, until is not. Other arguments and errors as for `archived_files`.
    """
    root = local_path(archive)
    selected = _selected(root, topics, since, until)
    if not selected:
        return spark.createDataFrame([], SPARK_SCHEMA)
    reader = spark.read.schema(SPARK_SCHEMA).option("basePath", f"{_LOCAL}{root}").option(_GLOB, "false")
    frame = reader.parquet(*(f"{_LOCAL}{root / file.name}" for _, file in selected))
    frame = _named(frame, {topic for topic, _ in selected})
    if since is not None:
        frame = frame.where(frame["offset"] > cursor(None, since, 0))
    return frame if until is None else frame.where(frame["offset"] <= last_before(until))


def logs_of(manifest: ArchiveManifest, topics: Selection) -> list[ArchivedLog]:
    """Select the logs of some topics.

    Raises `NotFound` ``unknown_topic`` for a name that the archive does not have, and if no topic matches.
    """
    logs = [log for log in manifest.logs if topics.means(log.topic)]
    there = {log.topic for log in manifest.logs}
    missing = [name for name in topics.names if name not in there]
    if missing or not logs:
        what = " or ".join(map(repr, missing)) or f"any of {topics}"
        raise error(
            "unknown_topic",
            f"the archive does not have {what}",
            f"it has {', '.join(sorted(there)) or 'no topic'}",
        )
    return logs


def _selected(
    root: Path, topics: str | Iterable[str] | None, since: Timestamp | None, until: Timestamp | None
) -> list[tuple[str, ArchivedFile]]:
    """The selected files, each with its topic."""
    selection, manifest = Selection("*" if topics is None else topics), read_manifest(root)
    logs = logs_of(manifest, selection) if selection.names else manifest.logs
    after, last = cursor(None, since, 0), last_before(until)
    return [
        (log.topic, file)
        for log in logs
        if selection.means(log.topic)
        for file in log.files
        if file.last > after and file.first <= last
    ]


def _named(frame: DataFrame, topics: Iterable[str]) -> DataFrame:
    """Replace names that were cut for a folder by those of their topics."""
    names = {name_in(topic_folder(topic)): topic for topic in topics}
    cut = {name: topic for name, topic in names.items() if name != topic}
    if not cut:
        return frame
    from pyspark.sql import functions

    pairs = [functions.lit(text) for pair in cut.items() for text in pair]
    whole = functions.try_element_at(functions.create_map(*pairs), frame["topic"])
    return frame.withColumn("topic", functions.coalesce(whole, frame["topic"]))
