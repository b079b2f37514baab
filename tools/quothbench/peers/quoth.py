"""Quoth, as the others see it: the calls of its client, and requests that were encoded beforehand."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import quoth
from quothbench.instruments.ratio import BATCH_BYTES
from quothbench.load import driver
from quothbench.load.clients import Clients
from quothbench.load.clients import Work as Task
from quothbench.load.driver import VALUE, WINDOW
from quothbench.load.target import own_broker
from quothbench.peers.work import CALL, Ready, Way, Work

DURABILITY = "written"
PROMISE = "the operating system has it; a power cut may take the last 50 ms"

PAGE = 10_000
ROUNDS = 4
"""How often `batches` reads everything in one measurement."""

_clock = time.perf_counter


class Amounts(NamedTuple):
    """Messages of one measurement: of `publish`, `producer.send`, reads, and requests encoded beforehand.

    raw_stored: what those read, again and again.
    """

    published: int = 100_000
    sent: int = 400_000
    stored: int = 500_000
    raw: int = 1_000_000
    raw_stored: int = 200_000


@contextmanager
def serving(directory: Path, clients: Clients, amounts: Amounts | None = None) -> Iterator[Quoth]:
    """Run a broker on a directory. Raises `Disconnected`."""
    with own_broker(directory) as broker:
        yield Quoth(broker.url, clients, amounts or Amounts())


class Quoth:
    """A broker that runs."""

    def __init__(self, url: str, clients: Clients, amounts: Amounts) -> None:
        self._url = url
        self._clients = clients
        self._amounts = amounts

    def ways(self, work: Work) -> Sequence[Way]:
        """The one way to do some work."""
        return [Way("", partial(self._measure, work))]

    def _measure(self, work: Work) -> float:
        amounts = self._amounts
        match work:
            case Work.PUBLISH:
                return self._rate(amounts.published, _publish)
            case Work.SEND:
                return self._rate(amounts.sent, _send)
            case Work.BATCHES:
                return ROUNDS * self._rate(amounts.stored, _batches, self._stored)
            case Work.READ:
                return self._rate(amounts.stored, _read, self._stored)
            case Work.RAW_WRITE:
                return self._rate(amounts.raw, _raw_write)
            case Work.RAW_READ:
                return self._rate(amounts.raw, _raw_read, self._raw_fetches)

    def _rate(self, messages: int, task: Task, *arguments: object) -> float:
        (done,) = self._clients.run(task, (self._url, messages, *arguments))
        return messages / float(done.result)

    @cached_property
    def _stored(self) -> str:
        with quoth.connect(self._url) as client, client.producer("stored") as producer:
            for _ in range(self._amounts.stored):
                producer.send(VALUE)
        return "stored"

    @cached_property
    def _raw_fetches(self) -> list[driver.Frames]:
        values = [VALUE] * CALL
        with quoth.connect(self._url) as client:
            lasts = [client.publish("raw", values).last for _ in range(self._amounts.raw_stored // CALL)]
        cursors = cycle([0, *lasts[:-1]])
        return driver.fetches("raw", list(islice(cursors, self._amounts.raw // CALL)), CALL, BATCH_BYTES)


@contextmanager
def _topic(url: str) -> Iterator[tuple[quoth.Client, str]]:
    """A client and an empty topic that vanishes."""
    with quoth.connect(url) as client:
        client.create_topic("measured")
        yield client, "measured"
        client.delete_topic("measured")


def _publish(ready: Ready, url: str, messages: int) -> float:
    values = [VALUE] * CALL
    with _topic(url) as (client, topic):
        ready()
        began = _clock()
        for _ in range(messages // CALL):
            client.publish(topic, values)
        return _clock() - began


def _send(ready: Ready, url: str, messages: int) -> float:
    with _topic(url) as (client, topic):
        ready()
        began = _clock()
        with client.producer(topic) as producer:
            send = producer.send
            for _ in range(messages):
                send(VALUE)
        return _clock() - began


def _batches(ready: Ready, url: str, messages: int, topic: str) -> float:
    with quoth.connect(url) as client:
        ready()
        began = _clock()
        counts = [sum(len(batch) for batch in client.batches(topic)) for _ in range(ROUNDS)]
        took = _clock() - began
    assert counts == [messages] * ROUNDS
    return took


def _read(ready: Ready, url: str, messages: int, topic: str) -> float:
    with quoth.connect(url) as client:
        ready()
        count, after, began = 0, 0, _clock()
        while found := client.read(topic, after=after, limit=PAGE):
            for message in found:
                count += message.value == VALUE
            after = message.pointer
        took = _clock() - began
    assert count == messages
    return took


def _raw_write(ready: Ready, url: str, messages: int) -> float:
    with _topic(url) as (_, topic), driver.dealer(url) as socket:
        requests = driver.publishes(topic, [VALUE] * CALL, messages // CALL)
        ready()
        began = _clock()
        driver.keep_window(socket, requests, WINDOW)
        return _clock() - began


def _raw_read(ready: Ready, url: str, _messages: int, requests: list[driver.Frames]) -> float:
    with driver.dealer(url) as socket:
        ready()
        began = _clock()
        driver.keep_window(socket, requests, WINDOW, BATCH_BYTES)
        return _clock() - began
