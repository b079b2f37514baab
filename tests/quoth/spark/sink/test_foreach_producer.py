"""`write_partition`: what a task produces is in the topic once, however often the task is run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.client.records import numbers
from quoth import Client
from quoth.spark.sink.foreach_producer import write_partition


def test_rows_of_tasks_that_are_tried_again_and_jobs_that_are_run_again_are_there_once(
    spark: Any, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    """One task is killed in the middle of its rows, another one after it has written them."""
    url, marks = broker.url, str(tmp_path)

    def first_time(what: str) -> bool:
        try:
            os.mkdir(f"{marks}/{what}")
        except FileExistsError:
            return False
        return True

    def produce(rows: Iterable[int]) -> None:
        def encoded() -> Iterator[bytes]:
            for row in rows:
                if row == 20_000 and first_time("in the middle"):
                    os.kill(os.getpid(), signal.SIGKILL)
                yield b"%d" % row

        write_partition(encoded(), topic, url=url, application="app", version=1)
        if first_time("at the end"):
            os.kill(os.getpid(), signal.SIGKILL)

    numbered = spark.sparkContext.parallelize(range(30_000), 3)
    for _ in range(2):
        numbered.foreachPartition(produce)
    found = numbers(client, topic)
    assert len(found) == 30_000
    assert sorted(found) == list(range(30_000))
    assert sorted(os.listdir(marks)) == ["at the end", "in the middle"]
    (whole,) = [client.transaction(topic, "app/2", 1).status()]
    assert whole.last - whole.first == whole.count - 1


def test_partition_is_written_whole_and_once_under_its_name(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    rows: list[Any] = [b"1", (b"2", b"k"), (b"3", None), (b"4", b"", {"h": b"x"}), Row(value=b"5")]
    acks = [
        write_partition(iter(rows), topic, url=broker.url, application="app", version=5, partition="a-b")
        for _ in range(2)
    ]
    assert [ack.duplicate for ack in acks] == [False, True]
    assert acks[0].first == acks[1].first
    assert [one[2:] for one in client.read(topic)] == [
        (b"1", None, {}),
        (b"2", b"k", {}),
        (b"3", None, {}),
        (b"4", b"", {"h": b"x"}),
        (b"5", None, {}),
    ]
    assert client.transaction(topic, "app/a-b", 5).status().count == 5
    assert client.topic(topic).counters["staged_bytes"] == 0


def test_largest_record_is_the_one_of_the_page(broker: BrokerProcess, client: Client, topic: str) -> None:
    write_partition([bytes(16 * 2**20 - 2**10)], topic, url=broker.url, application="app", partition=0)
    with refused("too_large"):
        write_partition([bytes(16 * 2**20)], topic, url=broker.url, application="app", partition=1)
    assert client.topic(topic).count == 1


def test_no_rows_are_no_transaction(broker: BrokerProcess, client: Client, topic: str) -> None:
    assert write_partition([], topic, url=broker.url, application="app", partition=0).count == 0
    assert topic not in client.topics()


def test_wrong_row_and_a_partition_without_a_name_are_refused_and_nothing_is_written(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    wrong: list[Any] = ["text", None, 5, (), (b"v", b"k", {}, 1), ("v", b"k"), (b"v", 1)]
    for row in wrong:
        with refused("bad_request"):
            write_partition([b"a", row], topic, url=broker.url, application="app", partition=0)
    with refused("bad_request"):
        write_partition([b"a"], topic, url=broker.url, application="app")
    assert topic not in client.topics()
