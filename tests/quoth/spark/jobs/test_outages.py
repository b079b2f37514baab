"""An outage of a broker under a stream, which continues within two seconds of its return."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.scale import times
from quoth import Client

RESUMED_S = 2.0
OUTAGE_S = times(3, 600)
TRIES = 3
"""Outages, until the stream has continued in time: the machine may stand still behind one of them."""
TIMEOUT = "900s"
"""How long the broker may be away before the query fails: by default a minute."""


@pytest.mark.alone
@pytest.mark.timeout(TRIES * OUTAGE_S + 120)
def test_a_stream_continues_within_two_seconds_of_the_brokers_return(
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
        stored, waited = [b"before"], RESUMED_S
        while waited >= RESUMED_S and len(stored) <= TRIES:
            broker.kill()
            pause(OUTAGE_S)
            broker.restart()
            began = time.monotonic()
            stored.append(b"after outage %d" % len(stored))
            client.publish("orders", stored[-1])
            eventually(lambda: values(client) == stored, "it goes on")
            waited = time.monotonic() - began
            print(f"the stream waited {waited:.2f} s after an outage of {OUTAGE_S} s")
    finally:
        query.stop()
    assert waited < RESUMED_S


def values(client: Client) -> list[bytes]:
    """The values in the topic `copies`."""
    return [message.value for message in client.read("copies")]
