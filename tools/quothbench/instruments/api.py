"""`quoth bench api`: the rate of each method of the Python client.

Records are encoded, sent, stored, fetched, checked and decoded by the same calls that an application makes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Annotated, NamedTuple

import typer

import quoth
from quothbench import options
from quothbench.load.clients import Clients, Ready
from quothbench.load.rates import SECONDS, Counted, Payload, Rates, columns
from quothbench.load.topics import BenchTopics
from quothbench.report import Report, ReportColumn
from quothcli.cli.command import command, group
from quothwire.text.quantity import format_span

PAYLOAD = Payload(100, 100)
PAGE = 1_000
"""The default limit of `read`."""
WARM_UP_S = 0.25


class Budget(NamedTuple):
    """The end of a measurement: after a time or a number of messages, whichever comes first."""

    seconds: float = math.inf
    messages: float = math.inf

    def meter(self) -> Callable[[int], bool]:
        """Begin now; the function returned is True when so many messages use the budget up."""
        ends = time.perf_counter() + self.seconds
        return lambda messages: messages >= self.messages or time.perf_counter() >= ends

    @property
    def warm_up(self) -> Budget:
        """Return a smaller one, for what does not count."""
        return Budget(min(WARM_UP_S, self.seconds), self.messages)


class Stock(NamedTuple):
    """The material of a method: a topic, the messages to publish, how many are stored to be read."""

    topic: str
    values: list[bytes]
    stored: int = 0

    @classmethod
    def stored_by(cls, topics: BenchTopics, values: list[bytes]) -> Stock:
        """Make and fill a topic."""
        (topic,) = topics.make()
        (cursors,) = topics.fill([topic])
        return cls(topic, values, len(cursors) * len(values))


Use = Callable[[quoth.Client, Stock, Budget], Counted]


def publish_many(client: quoth.Client, stock: Stock, budget: Budget) -> Counted:
    """Publish all values with each call."""
    return _calls(lambda: client.publish(stock.topic, stock.values).count, budget)


def publish_one(client: quoth.Client, stock: Stock, budget: Budget) -> Counted:
    """Publish one value with each call."""
    value = stock.values[0]
    return _calls(lambda: client.publish(stock.topic, value).count, budget)


def send(client: quoth.Client, stock: Stock, budget: Budget) -> Counted:
    """Send through a producer, until everything is acknowledged."""
    is_over, messages = budget.meter(), 0
    with client.producer(stock.topic) as producer:
        while not (messages and is_over(messages)):
            for value in stock.values:
                producer.send(value)
            messages += len(stock.values)
        producer.flush()
    return messages, []


def batches(client: quoth.Client, stock: Stock, budget: Budget) -> Counted:
    """Read batches from the oldest record to the newest one, again and again."""
    is_over, messages = budget.meter(), 0
    while True:
        for batch in client.batches(stock.topic, after=0):
            messages += len(batch)
            if is_over(messages):
                return messages, []


def read(client: quoth.Client, stock: Stock, budget: Budget) -> Counted:
    """Read page by page from the oldest record to the newest one, again and again."""
    cursor = 0

    def page() -> int:
        nonlocal cursor
        found = client.read(stock.topic, after=cursor, limit=PAGE)
        count, cursor = 0, 0
        for message in found:
            cursor = message.pointer
            count += 1
        return count

    return _calls(page, budget)


def tail(client: quoth.Client, stock: Stock, budget: Budget) -> Counted:
    """Tail from the oldest record to the newest one, again and again. Every pass is completed."""
    is_over, messages = budget.meter(), 0
    while not (messages and is_over(messages)):
        wanted = int(min(stock.stored, budget.messages - messages))
        for _message in islice(client.tail(stock.topic, after=0), wanted):
            messages += 1
    return messages, []


WRITES: dict[str, Use] = {"publish([values])": publish_many, "publish(value)": publish_one, "send()": send}
READS: dict[str, Use] = {"batches()": batches, f"read(limit={PAGE})": read, "tail()": tail}

COLUMNS = (
    ReportColumn("method", "method", width=17),
    ReportColumn("durability", "durability", width=10),
    *columns("message", lambda figure: f"{figure:,.2f}"),
)


def measure(
    on: options.OnBroker,
    clients: Clients,
    report: Report,
    payload: Payload,
    durabilities: Sequence[str],
    budget: Budget,
) -> None:
    """Measure writing methods at each level, then reading ones, a row for each."""

    def row(name: str, durability: str | None, use: Use, stock: Stock) -> None:
        measured = Rates.measure(clients, on.broker, _use, (on.broker.url, use, stock, budget))
        report.row(name, durability, *measured.figures(payload.size, measured.messages))

    for name, use in WRITES.items():
        for durability in durabilities:
            (topic,) = on.topics.make(1, durability)
            row(name, durability, use, Stock(topic, payload.values))
            on.topics.delete([topic])
    stock = Stock.stored_by(on.topics, payload.values)
    for name, use in READS.items():
        row(name, None, use, stock)


def _use(ready: Ready, url: str, use: Use, stock: Stock, budget: Budget) -> Counted:
    with quoth.connect(url) as client:
        use(client, stock, budget.warm_up)
        ready()
        return use(client, stock, budget)


def _calls(call: Callable[[], int], budget: Budget) -> Counted:
    """Repeat a call, which returns its number of messages, at least once, and measure each one."""
    clock, is_over = time.perf_counter, budget.meter()
    took: list[float] = []
    messages = 0
    while not (took and is_over(messages)):
        began = clock()
        messages += call()
        took.append(clock() - began)
    return messages, took


app = group()


@command(app, "api", "quoth bench api", "quoth bench api --durability written --size 1000")
def api(
    session: options.MeasuredBroker,
    records: options.Records = PAYLOAD.records,
    size: options.Size = PAYLOAD.size,
    lasts: Annotated[
        float | None,
        options.seconds(f"How long a row is measured (default: {format_span(SECONDS, short=True)})."),
    ] = None,
    messages: Annotated[
        int | None, options.number("messages", "Measure N messages of a client, not a time.")
    ] = None,
    durability: options.Levels = None,
    count: Annotated[int, options.number("clients", "Client processes.")] = 1,
    directory: options.Directory = None,
) -> None:
    """Measure what a Python program gets from the client's methods.

    Processor time is that of a message. There is no time of a call where several calls are on their way at
    once, or where a call has no end.
    """
    if lasts is not None and messages is not None:
        raise typer.BadParameter("it is measured for a time or for a number", param_hint="--messages")
    payload = Payload(records, size)
    budget = Budget(messages=messages) if messages else Budget(lasts or SECONDS)
    amount = {"messages": messages} if messages else {"seconds": budget.seconds}
    conditions = {"clients": count, "batch": records, "value_bytes": size, **amount}
    with options.on_broker(session, directory, payload) as on, Clients(count) as clients:
        report = on.report("api", conditions, COLUMNS)
        measure(on, clients, report, payload, durability or tuple(options.Level), budget)
