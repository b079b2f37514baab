"""Archiving by the workers of a real Spark, who are killed, and by drivers, who are too."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from kit.spark.archives import files_in, of_archive, of_topic, publish, run
from kit.spark.workers import LocalWorkers
from quoth import Client
from quoth.spark.archive import archived_files, parquet, read_archive
from quoth.spark.archive.archiver import KEEP_REPLACED_S, Policy, TopicArchiver
from quoth.spark.atomic_files import AtomicFile
from quoth.spark.jobs import archive
from quoth.spark.jobs.session import JobBroker
from quoth.spark.workers import SparkWorkers
from quothcli.commands.pipeline import command as typed_archive

FILE_BYTES = 300_000


def fill(client: Client, topic: str, batches: int = 100) -> None:
    """Publish some megabytes."""
    for number in range(batches):
        client.publish(
            topic, [b"%d %d %s" % (number, row, os.urandom(50).hex().encode()) for row in range(400)]
        )


def archived(spark: Any, client: Client, root: Path, topic: str) -> dict[str, Any]:
    """Archive on Spark; returns the summary."""
    policy = Policy(file_bytes=FILE_BYTES)
    content: dict[str, Any] = archive.archiving(root, topic, broker=JobBroker(client.url), policy=policy)(
        spark
    ).content
    return content


def test_archive_that_spark_wrote_is_read_by_spark(
    spark: Any, client: Client, tmp_path: Path, topic: str
) -> None:
    publish(client, topic, [50, 7, 30, 1])
    publish(client, f"{topic} %41", [5])
    summary = archived(spark, client, tmp_path, f"{topic}*")
    assert (summary["records"], summary["lost"], summary["commits"]) == (93, 0, 1)
    frame = read_archive(spark, tmp_path)
    assert {tuple(row) for row in frame.groupBy("topic").count().collect()} == {
        (topic, 88),
        (f"{topic} %41", 5),
    }
    found = frame.where(frame["topic"] == topic).orderBy("offset").collect()
    expected = [(one.pointer, one.time, one.key, one.value) for one in client.read(topic)]
    assert [
        (row["offset"], row["timestamp"].replace(tzinfo=UTC), row["key"], row["value"]) for row in found
    ] == expected
    merged = archive.compaction(tmp_path, keep_replaced=0)(spark).content
    assert merged["files"] == 0
    [middle] = client.read(topic, limit=60)[50:51]
    part = read_archive(spark, tmp_path, topic, since=middle.pointer)
    assert (part.count(), read_archive(spark, tmp_path, "no*", until=3).count()) == (38, 0)


def test_archive_is_read_from_any_folder_and_topics_by_their_names(
    spark: Any, client: Client, tmp_path: Path, topic: str
) -> None:
    folder = "a:b per%20cent glob[1]{x,y} ?*"
    names = [f"{topic}-{'#' * 70}", f"{topic}-{':' * 80}", f"{topic} %41", "__HIVE_DEFAULT_PARTITION__"]
    for name in names:
        client.publish(name, name.encode())
    TopicArchiver(client, tmp_path / folder, LocalWorkers(), names).run()
    configuration = spark._jsc.hadoopConfiguration()
    usual = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", "hdfs://nowhere:8020")  # as on a cluster
    try:
        rows = read_archive(spark, tmp_path / folder).select("topic", "value").collect()
    finally:
        configuration.set("fs.defaultFS", usual)
    assert {row["topic"] for row in rows} == set(names)
    assert [row["topic"].encode() for row in rows] == [bytes(row["value"]) for row in rows]


def test_workers_that_are_killed_while_they_write_cost_nothing(
    spark: Any, client: Client, tmp_path: Path, topic: str
) -> None:
    """Twice, with a file that is written and has not got its name yet."""
    fill(client, topic)
    root, marks = tmp_path / "archive", [str(tmp_path / name) for name in ("first", "second")]

    class Mortal(SparkWorkers):
        """Workers that kill themselves."""

        def each(self, work: Any, parts: Any) -> Any:
            keep = AtomicFile.keep

            def die(file: AtomicFile, path: Path) -> int:
                for mark in marks:
                    with suppress(FileExistsError):
                        os.mkdir(mark)
                        os.kill(os.getpid(), signal.SIGKILL)
                return keep(file, path)

            def mortal(part: Any) -> Any:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(AtomicFile, "keep", die)
                    return work(part)

            return super().each(mortal, parts)

    archiver = TopicArchiver(client, root, Mortal(spark), [topic], Policy(file_bytes=FILE_BYTES))
    archiver.run()
    assert all(map(os.path.exists, marks))
    assert (archiver.tally.records, archiver.tally.lost) == (40_000, 0)
    assert of_archive(root) == of_topic(client, topic)
    run("compact", client, root)
    assert files_in(root) == archived_files(root)


def test_command_and_job_have_the_same_defaults() -> None:
    """The command does not load Spark and pyarrow to tell."""
    assert typed_archive._KEEP_REPLACED_S == KEEP_REPLACED_S
    assert typed_archive._FILE_BYTES == parquet.FILE_BYTES
