"""Growth: the time of a start and of a publish, with little data and with much."""

from __future__ import annotations

import time
from itertools import count as numbers
from pathlib import Path
from typing import NamedTuple

from quothbench.figures import alternate
from quothbench.load import driver
from quothbench.load.clients import Clients, Ready, elapsed
from quothbench.load.target import Target, own_broker
from quothbench.load.topics import fill
from quothcli.printing.progress import Advance

CALLS = 1_000
"""Publishes of one measurement: 100,000 records, so a small topic is made anew for each."""
VALUES = (driver.VALUE,) * 100
BATCH_RECORDS = 10_000
TOPIC = "stored"


class FewMany(NamedTuple):
    """A small and a large number of the same things."""

    few: int
    many: int


class Start(NamedTuple):
    """Seconds from the start of the process until it is ready, and until it has answered two requests."""

    ready: float
    answered: float


def starts(directory: Path, sizes: FewMany, pairs: int, advance: Advance) -> list[tuple[Start, Start]]:
    """Start brokers on a small and on a large topic in turn. sizes: bytes of their records."""
    values = [bytes(1_000)] * 64
    paths = [directory / f"{size} bytes" for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        with own_broker(path) as broker:
            fill(broker.url, TOPIC, values, -(-size // sum(map(len, values))), advance)
    few, many = paths
    return alternate(lambda: _start(few), lambda: _start(many), pairs)


def appends(
    broker: Target, client: Clients, records: FewMany, pairs: int, advance: Advance
) -> list[tuple[float, float]]:
    """Publish to a topic with few and to one with many records in turn; return seconds of a call."""
    small_topics = (f"few records {number}" for number in numbers())

    def append(topic: str) -> float:
        return elapsed(client.run(_append, (broker.url, topic))) / CALLS

    def append_to_few() -> float:
        topic = next(small_topics)
        _store(broker.url, topic, records.few, advance)
        return append(topic)

    _store(broker.url, TOPIC, records.many, advance)
    return alternate(append_to_few, lambda: append(TOPIC), pairs)


def _store(url: str, topic: str, records: int, advance: Advance) -> None:
    """Store records of 10 bytes in large batches."""
    size = min(records, BATCH_RECORDS)
    fill(url, topic, [bytes(10)] * size, records // size, advance)


def _start(directory: Path) -> Start:
    began = time.monotonic()
    with own_broker(directory) as broker:
        ready = time.monotonic() - began
        with driver.dealer(broker.url) as socket:
            driver.round_trips(socket, driver.fetches(TOPIC, [0], 1, 1))
            driver.round_trips(socket, driver.repeated(TOPIC, VALUES, 1))
        return Start(ready, time.monotonic() - began)


def _append(ready: Ready, url: str, topic: str) -> None:
    requests = driver.publishes(topic, VALUES, driver.WINDOW + CALLS)
    with driver.dealer(url) as socket:
        driver.keep_window(socket, requests[: driver.WINDOW])
        ready()
        driver.keep_window(socket, requests[driver.WINDOW :])
