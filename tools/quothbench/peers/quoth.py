"""Quoth: the calls of its client, and requests that were encoded beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter

import quoth
from quothbench.instruments import api
from quothbench.load import driver
from quothbench.load.clients import Ready
from quothbench.load.driver import BATCH, VALUE
from quothbench.load.servers import own_broker
from quothbench.load.topics import cursors, fill
from quothbench.peers.work import CALL, Peer, Way, Work

PAGE = 10_000
ROUNDS = 4
"""How often `batches` reads everything in one measurement."""
STORED = 500_000
RAW_STORED = 200_000
"""Messages that raw reads read, again and again."""


@contextmanager
def _serving(directory: Path) -> Iterator[str]:
    with own_broker(directory) as broker:
        yield broker.url


def _store(url: str, stored: int = STORED, raw_stored: int = RAW_STORED) -> None:
    with quoth.connect(url) as client, client.producer("stored") as producer:
        for _ in range(stored):
            producer.send(VALUE)
    fill(url, "raw", [VALUE] * CALL, raw_stored // CALL, lambda *_: None)


@contextmanager
def _topic(url: str) -> Iterator[tuple[quoth.Client, str]]:
    """Connect a client and create a topic, which is deleted at the end."""
    with quoth.connect(url) as client:
        client.create_topic("measured")
        yield client, "measured"
        client.delete_topic("measured")


def _write(ready: Ready, url: str, messages: int, use: api.Use, records: int) -> float:
    with _topic(url) as (client, topic):
        ready()
        began = perf_counter()
        counted, _ = use(client, api.Stock(topic, [VALUE] * records), api.Budget(messages=messages))
        took = perf_counter() - began
    assert counted == messages
    return took


def _batches(ready: Ready, url: str, messages: int) -> float:
    with quoth.connect(url) as client:
        ready()
        began = perf_counter()
        counted = sum(len(batch) for _ in range(ROUNDS) for batch in client.batches("stored"))
        took = perf_counter() - began
    assert counted == messages
    return took


def _read(ready: Ready, url: str, messages: int) -> float:
    """Read page by page, and look at the value of each message."""
    with quoth.connect(url) as client:
        ready()
        counted, after, began = 0, 0, perf_counter()
        while found := client.read("stored", after=after, limit=PAGE):
            for message in found:
                counted += message.value == VALUE
            after = message.pointer
        took = perf_counter() - began
    assert counted == messages
    return took


def _raw_write(ready: Ready, url: str, messages: int) -> float:
    with _topic(url) as (_, topic):
        make = partial(driver.publishes, topic, [VALUE] * CALL, messages // CALL)
        return driver.windowed(ready, url, make)


def _raw_read(ready: Ready, url: str, messages: int) -> float:
    with quoth.connect(url) as client:
        places = islice(cycle(cursors(client, "raw")), messages // CALL)
    return driver.windowed(ready, url, partial(driver.fetches, "raw", list(places), CALL, len(BATCH)))


QUOTH = Peer(
    "written",
    "the operating system has it; a power cut may take the last 50 ms",
    {},
    "quoth",
    lambda: "",
    _serving,
    _store,
    (
        Way(Work.PUBLISH, "", 100_000, _write, (api.publish_many, CALL)),
        Way(Work.SEND, "", 400_000, _write, (api.send, 1_000)),
        Way(Work.BATCHES, "", ROUNDS * STORED, _batches),
        Way(Work.READ, "", STORED, _read),
        Way(Work.RAW_WRITE, "", 1_000_000, _raw_write),
        Way(Work.RAW_READ, "", 1_000_000, _raw_read),
    ),
)
