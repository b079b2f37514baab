"""Archiving by the workers of a real Spark, who are killed, and by drivers, who are too."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from threading import Event, Thread
from typing import Any

from kit.deadlines import eventually
from kit.machine.processes import children, runs
from kit.spark.archives import files_in, of_archive, of_topic, publish, run
from kit.spark.workers import LocalWorkers
from quoth import Client
from quoth.spark.archive import archived_files, parquet, read_archive
from quoth.spark.archive.archiver import KEEP_REPLACED_S, Policy, TopicArchiver
from quoth.spark.jobs import archive
from quoth.spark.jobs.session import JobBroker
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


def unfinished(root: Path) -> list[Path]:
    """Files that are being written."""
    return list(root.rglob(".*.tmp"))


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
    fill(client, topic)
    java = spark.sparkContext._gateway.proc.pid
    killed: list[int] = []
    over = Event()

    def kill() -> None:
        """Kill whatever writes, twice."""
        while not over.is_set() and len(killed) < 2:
            if unfinished(tmp_path):
                for daemon in children(java):
                    for worker in children(daemon)[:1]:
                        with suppress(ProcessLookupError):  # it has ended by itself
                            os.kill(worker, signal.SIGKILL)
                            killed.append(worker)
                eventually(lambda: over.is_set() or not any(map(runs, killed)), "they are dead")

    killing = Thread(target=kill)
    killing.start()
    try:
        summary = archived(spark, client, tmp_path, topic)
    finally:
        over.set()
        killing.join()
    assert killed
    assert (summary["records"], summary["lost"]) == (40_000, 0)
    assert of_archive(tmp_path) == of_topic(client, topic)
    run("compact", client, tmp_path)
    assert files_in(tmp_path) == archived_files(tmp_path)


def test_command_and_job_have_the_same_defaults() -> None:
    """The command does not load Spark and pyarrow to tell."""
    assert typed_archive._KEEP_REPLACED_S == KEEP_REPLACED_S
    assert typed_archive._FILE_BYTES == parquet.FILE_BYTES
