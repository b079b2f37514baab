"""`quoth bench api`: what a Python program gets from each method of the client.

Records are encoded, sent, stored, fetched, checked and decoded, by the same lines that an application calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import quoth
from quothbench.load import rates
from quothbench.load.clients import Clients
from quothbench.load.rates import Got, Payload, Rates, Tally, tally
from quothbench.load.target import Target
from quothbench.load.topics import Topics
from quothbench.report import Column, Report

PAYLOAD = Payload(100, 100)
PAGE = 1_000
"""What `read` returns at most unless it is told otherwise."""
WARM_UP_S = 0.25


class Budget(NamedTuple):
    """How long each client goes on: until one of both is reached."""

    seconds: float = math.inf
    messages: float = math.inf

    def meter(self) -> Callable[[int], bool]:
        """Begin now; the function says whether it is over after so many messages."""
        ends = time.perf_counter() + self.seconds
        return lambda messages: messages >= self.messages or time.perf_counter() >= ends


class Stock(NamedTuple):
    """What a method works on: a topic, the messages that it publishes, how many are stored to be read."""

    topic: str
    values: list[bytes]
    stored: int = 0


Use = Callable[[quoth.Client, Stock, Budget], Got]


def publish_many(client: quoth.Client, stock: Stock, budget: Budget) -> Got:
    """All values with each call."""
    return _calls(lambda: client.publish(stock.topic, stock.values).count, budget)


def publish_one(client: quoth.Client, stock: Stock, budget: Budget) -> Got:
    """One value with each call."""
    value = stock.values[0]
    return _calls(lambda: client.publish(stock.topic, value).count, budget)


def send(client: quoth.Client, stock: Stock, budget: Budget) -> Got:
    """Through a producer, until everything is acknowledged."""
    is_over, messages = budget.meter(), 0
    with client.producer(stock.topic) as producer:
        while not is_over(messages):
            for value in stock.values:
                producer.send(value)
            messages += len(stock.values)
        producer.flush()
    return messages, []


def batches(client: quoth.Client, stock: Stock, budget: Budget) -> Got:
    """From the oldest record to the newest one, again and again."""
    is_over, messages = budget.meter(), 0
    while True:
        for batch in client.batches(stock.topic, after=0):
            messages += len(batch)
            if is_over(messages):
                return messages, []


def read(client: quoth.Client, stock: Stock, budget: Budget) -> Got:
    """Page by page from the oldest record to the newest one, again and again."""
    cursor = 0

    def page() -> int:
        nonlocal cursor
        count, before, cursor = 0, cursor, 0
        for message in client.read(stock.topic, after=before, limit=PAGE):
            cursor = message.pointer
            count += 1
        return count

    return _calls(page, budget)


def tail(client: quoth.Client, stock: Stock, budget: Budget) -> Got:
    """From the oldest record to the newest one, as often as there is time to; every pass is completed."""
    is_over, messages = budget.meter(), 0
    while not is_over(messages):
        wanted = int(min(stock.stored, budget.messages - messages))
        for _message in islice(client.tail(stock.topic, after=0), wanted):
            messages += 1
    return messages, []


WRITES: dict[str, Use] = {"publish([values])": publish_many, "publish(value)": publish_one, "send()": send}
READS: dict[str, Use] = {"batches()": batches, f"read(limit={PAGE})": read, "tail()": tail}

COLUMNS = (
    Column("method", "method", width=17),
    Column("durability", "durability", width=10),
    *rates.COLUMNS,
    Column("broker_microseconds_per_message", "broker us", lambda figure: f"{figure:,.2f}"),
    Column("clients_microseconds_per_message", "clients us", lambda figure: f"{figure:,.2f}", 10),
)


class Bench:
    """Measures one method after the other."""

    def __init__(
        self, target: Target, clients: Clients, topics: Topics, report: Report, payload: Payload
    ) -> None:
        self._target = target
        self._clients = clients
        self._topics = topics
        self._report = report
        self._payload = payload

    def run(self, durabilities: Sequence[str], budget: Budget) -> None:
        """Measure what writes at each level, then what reads, a row for each."""
        values = self._payload.values
        for name, use in WRITES.items():
            for durability in durabilities:
                (topic,) = self._topics.make(1, durability)
                self._measure(name, durability, use, Stock(topic, values), budget)
                self._topics.delete([topic])
        (topic,) = self._topics.make(1)
        (cursors,) = self._topics.fill([topic])
        stock = Stock(topic, values, len(cursors) * len(values))
        for name, use in READS.items():
            self._measure(name, None, use, stock, budget)

    def _measure(self, name: str, durability: str | None, use: Use, stock: Stock, budget: Budget) -> None:
        measured = Rates.of(self._clients.run(_use, (self._target, use, stock, budget)))
        self._report.row(
            name, durability, *measured.figures(self._payload.size), *measured.costs(measured.messages)
        )


def _use(ready: Callable[[], None], target: Target, use: Use, stock: Stock, budget: Budget) -> Tally:
    warm = Budget(min(WARM_UP_S, budget.seconds), budget.messages)
    with quoth.connect(target.url) as client:
        return tally(ready, target, lambda: use(client, stock, warm), lambda: use(client, stock, budget))


def _calls(call: Callable[[], int], budget: Budget) -> Got:
    """Call, which does so many messages, again and again, and take the time of each."""
    clock, is_over = time.perf_counter, budget.meter()
    messages, took = 0, []
    while not is_over(messages):
        began = clock()
        messages += call()
        took.append(clock() - began)
    return messages, took
