"""The replay on Spark: from a topic into an archive and back, whatever is killed, and at its own rate."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kit.broker.brokers import BrokerProcess
from kit.spark.archives import FILE_BYTES, publish
from kit.spark.replays import (
    BEGAN,
    Record,
    Replaying,
    parts_of,
    replayed,
    some_records,
    write_archive,
)
from quoth import Client
from quoth.spark.archive.archiver import Policy, TopicArchiver
from quoth.spark.jobs import replay
from quoth.spark.jobs.session import JobBroker, JobSummary
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.inputs import ReplayRequest
from quoth.spark.workers import SparkWorkers
from quothwire.errors import Damaged, QuothError

SMALL = ChunkLimits(records=400)

Run = Callable[..., JobSummary]


@pytest.fixture
def run(spark: Any, broker: BrokerProcess, root: Path, topic: str, reports: list[str]) -> Run:
    """Runs the job that replays what lies at `root` into the topic of the test."""

    def run_it(path: Path = root, *, to: Sequence[str] = (topic,), **options: Any) -> JobSummary:
        settings = {"broker": JobBroker(broker.url, tell=reports.append), "limits": SMALL, **options}
        job = replay.job(path, request=ReplayRequest(to=tuple(to)), **settings)
        return job if isinstance(job, JobSummary) else job(spark)

    return run_it


def test_topic_goes_into_an_archive_and_comes_back_once(
    spark: Any, client: Client, run: Run, root: Path, topic: str
) -> None:
    publish(client, f"{topic}.old", [500, 1, 300, 7, 1_000, 1_200])
    TopicArchiver(client, root, SparkWorkers(spark), f"{topic}.old", Policy(file_bytes=FILE_BYTES)).run()
    done = run()
    read = client.read(f"{topic}.old", limit=5_000)
    original = [Record(one.pointer, one.key, one.value, dict(one.headers)) for one in read]
    assert done.content["records"] == len(original) == 3_008
    assert done.content["chunks"] == done.content["topics"][0]["chunks"] >= 8
    again = run()
    assert again.content["records"] == again.content["chunks"] == 0
    assert "nothing is left to replay" in again.lines[0]
    assert again.lines[-1] == "nothing was stored"
    assert replayed(client, topic) == original


def test_table_that_spark_has_written_is_replayed_file_by_file(
    spark: Any, client: Client, run: Run, root: Path, topic: str
) -> None:
    frame = spark.range(0, 5_000, 1, 3).selectExpr("id", "cast(id as string) as value")
    frame.write.parquet(str(root))
    run()
    assert [int(one.value) for one in replayed(client, topic)] == list(range(5_000))


def test_worker_that_is_killed_is_replaced(
    spark: Any, client: Client, root: Path, topic: str, rng: random.Random, tmp_path: Path
) -> None:
    records = some_records(rng, 2_000)
    write_archive(root, "orders", parts_of(records, 20))

    class Mortal(SparkWorkers):
        """Two tasks kill their worker when they have done their work, before they can report it."""

        def each(self, work: Any, parts: Any) -> Any:
            marks = [str(tmp_path / name) for name in ("first", "second")]

            def die_twice(part: Any) -> Any:
                done = work(part)
                for mark in marks:
                    if not os.path.exists(mark) and part[0] == 1:
                        open(mark, "x").close()
                        os.kill(os.getpid(), signal.SIGKILL)
                return done

            return super().each(die_twice, parts)

    Replaying(client, root, topic).replayer(workers=Mortal(spark), limits=SMALL).run()
    assert (tmp_path / "second").exists()
    assert replayed(client, topic) == records


def test_replay_rate_is_that_of_the_records_times_the_speed(
    client: Client, run: Run, root: Path, topic: str
) -> None:
    seconds = [0, 0, 1, 4, 4, 7, 8]
    records = [Record(BEGAN + 10**6 * at + row, None, b"%d" % at, {}) for row, at in enumerate(seconds)]
    others = [Record(BEGAN + 10**6 * 6 + row, None, b"other", {}) for row in range(3)]
    write_archive(root, "orders", [records])
    write_archive(root, "clicks", [others], log=77)
    began = time.time()
    done = run(to=(f"orders={topic}", f"clicks={topic}-2"), speed=2.0)
    assert replayed(client, topic) == records
    came = [one.pointer / 1e6 for one in client.read(topic)]
    for at, moment in zip(seconds, came, strict=True):
        assert moment - began >= at / 2 - 0.1
    [first, *_] = client.read(f"{topic}-2")
    assert came[4] < first.pointer / 1e6
    assert done.content["behind_s"] >= 0
    assert done.content["chunks"] == 5


def test_page_that_is_damaged_ends_the_job_at_its_chunk(
    client: Client, run: Run, root: Path, topic: str, rng: random.Random, reports: list[str]
) -> None:
    records = some_records(rng, 2_000)
    paths = write_archive(root, "orders", parts_of(records, 20))
    content = bytearray(paths[12].read_bytes())
    column = pq.read_metadata(paths[12]).row_group(0).column(3)
    content[column.data_page_offset + 100] ^= 1
    paths[12].write_bytes(content)
    with pytest.raises(Damaged, match=paths[12].name):
        run()
    published = replayed(client, topic)
    assert published == records[: len(published)]
    assert len(published) < 1_300
    assert any("run it again to go on" in line for line in reports)


def test_records_do_not_go_into_the_log_that_they_come_from(
    client: Client, run: Run, root: Path, topic: str
) -> None:
    first = client.publish(topic, [b"a", b"b"]).first
    records = [Record(first + row, None, value, {}) for row, value in enumerate([b"a", b"b"])]
    write_archive(root, topic, [records], log=client.topic(topic).log)
    with pytest.raises(QuothError, match="--same-topic"):
        run(to=())
    assert len(client.read(topic)) == 2
    run(to=(), same_topic=True)
    assert [one.value for one in client.read(topic)] == [b"a", b"b", b"a", b"b"]
