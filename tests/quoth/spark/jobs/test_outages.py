"""Outages of a broker under a job and under a stream: both go on within two seconds of its return."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.scale import times
from kit.spark.archives import of_archive, of_topic
from quoth import Client
from quoth.spark.archive.archiver import TopicArchiver
from quoth.spark.workers import LocalWorkers

RESUMED_S = 2.0
OUTAGE_S = times(3, 600)
TIMEOUT = "900s"
"""How long the broker may be away before the query fails: by default a minute."""


@pytest.mark.alone
def test_a_job_that_follows_goes_on_soon_though_it_looks_once_an_hour(
    start_broker: StartBroker, connect: Any, tmp_path: Path
) -> None:
    broker = start_broker()
    client: Client = connect(broker)
    client.publish("orders", b"a")
    told: list[str] = []
    impatient: Client = connect(broker)
    impatient.timeout = 1.0
    over, hour_is_over = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        if seconds > RESUMED_S:
            hour_is_over.wait()
            hour_is_over.clear()
        else:
            over.wait(seconds)
        if over.is_set():
            raise InterruptedError

    archiver = TopicArchiver(
        impatient, tmp_path / "archive", LocalWorkers(), "orders", tell=told.append, sleep=sleep
    )
    with ThreadPoolExecutor() as pool:
        try:
            following = pool.submit(archiver.follow, 3_600.0)
            eventually(lambda: archiver.tally.records == 1, "it has looked once")
            client.publish("orders", b"b")
            broker.kill()
            hour_is_over.set()
            eventually(lambda: len(told) > 1, "it has waited in vain, and again")
            broker.restart()
            began = time.monotonic()
            eventually(lambda: archiver.tally.records == 2, "all of it is archived")
            assert time.monotonic() - began < RESUMED_S
        finally:
            over.set()
            hour_is_over.set()
    with pytest.raises(InterruptedError):
        following.result()
    assert of_archive(tmp_path / "archive") == of_topic(client, "orders")


@pytest.mark.alone
@pytest.mark.timeout(OUTAGE_S + 120)
def test_a_stream_goes_on_within_two_seconds_of_the_brokers_return(
    spark: Any, start_broker: StartBroker, connect: Any, tmp_path: Path
) -> None:
    """One that reads from a topic and writes to another."""
    broker = start_broker()
    client: Client = connect(broker)
    client.create_topic("copies")
    client.publish("orders", b"before")
    place = {"url": broker.url, "timeout": TIMEOUT}
    orders = spark.readStream.format("quoth").options(**place, subscribe="orders", startingOffsets="earliest")
    copies = orders.load().select("value").writeStream.format("quoth").options(**place, topic="copies")
    started = copies.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = started.trigger(processingTime="100 milliseconds").start()
    try:
        eventually(lambda: values(client) == [b"before"], "it runs", 3 * DEADLINE_S)
        broker.kill()
        pause(OUTAGE_S)
        broker.restart()
        began = time.monotonic()
        client.publish("orders", b"after")
        eventually(lambda: values(client) == [b"before", b"after"], "it goes on")
        waited = time.monotonic() - began
    finally:
        query.stop()
    print(f"the stream waited {waited:.2f} s after an outage of {OUTAGE_S} s")
    assert waited < RESUMED_S


def values(client: Client) -> list[bytes]:
    """The values in the topic `copies`."""
    return [message.value for message in client.read("copies")]
