"""`quoth bench api`: the methods of `quoth` and of `quoth.aio` in turn.

Records are encoded, sent, stored, fetched, checked and decoded by the same calls that an application makes.
Each method is a generator that repeats a step without end and yields the number of messages of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Annotated, NamedTuple, TypeAlias

import quoth
import quoth.aio
from quothbench import options
from quothbench.figures import alternate, spreads
from quothbench.load.clients import Clients, Ready, Task, elapsed
from quothbench.load.topics import Payload
from quothbench.report import Report, ReportColumn, count, spread
from quothcli.cli.command import command, group

PAGE = 1_000
"""The default limit of `read`."""
AT_ONCE = 32
"""Threads, or tasks, that publish at once."""
CALLS = 10
"""Publishes of each of them in a step."""
WARM_UP_S = 0.25


class Stock(NamedTuple):
    """The material of a method: a topic, the messages to publish, how many are stored to be read."""

    topic: str
    values: list[bytes]
    stored: int = 0


Steps: TypeAlias = Generator[int, None, None]
AsyncSteps: TypeAlias = AsyncGenerator[int, None]
Use = Callable[[quoth.Client, Stock], Steps]
AsyncUse = Callable[[quoth.aio.Client, Stock], AsyncSteps]


# -- the blocking client ------------------------------------------------------------------------------------


def publish_many(client: quoth.Client, stock: Stock) -> Steps:
    """Publish all values with each call."""
    while True:
        yield client.publish(stock.topic, stock.values).count


def publish_one(client: quoth.Client, stock: Stock) -> Steps:
    """Publish one value with each call."""
    while True:
        yield client.publish(stock.topic, stock.values[0]).count


def publish_in_threads(client: quoth.Client, stock: Stock) -> Steps:
    """Publish one value after the other in each of `AT_ONCE` threads."""

    def publish(_thread: int) -> int:
        return sum(islice(publish_one(client, stock), CALLS))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        while True:
            yield sum(pool.map(publish, range(AT_ONCE)))


def send(client: quoth.Client, stock: Stock) -> Steps:
    """Send through a producer. Its end waits until everything is acknowledged."""
    with client.producer(stock.topic) as producer:
        try:
            while True:
                for value in stock.values:
                    producer.send(value)
                yield len(stock.values)
        finally:
            producer.flush()


def batches(client: quoth.Client, stock: Stock) -> Steps:
    """Read batches from the oldest record to the newest one."""
    while True:
        for batch in client.batches(stock.topic, after=0):
            yield len(batch)


def read(client: quoth.Client, stock: Stock) -> Steps:
    """Read page by page from the oldest record to the newest one, and look at each message."""
    after = 0
    while True:
        found = client.read(stock.topic, after=after, limit=PAGE)
        pointers = [message.pointer for message in found]
        after = pointers[-1] if pointers else 0
        yield len(pointers)


def tail(client: quoth.Client, stock: Stock) -> Steps:
    """Tail from the oldest record to the newest one."""
    while True:
        yield sum(1 for _message in islice(client.tail(stock.topic, after=0), stock.stored))


# -- the client for asyncio ---------------------------------------------------------------------------------


async def aio_publish_many(client: quoth.aio.Client, stock: Stock) -> AsyncSteps:
    """Publish all values with each call."""
    while True:
        yield (await client.publish(stock.topic, stock.values)).count


async def aio_publish_one(client: quoth.aio.Client, stock: Stock) -> AsyncSteps:
    """Publish one value with each call."""
    while True:
        yield (await client.publish(stock.topic, stock.values[0])).count


async def aio_publish_in_tasks(client: quoth.aio.Client, stock: Stock) -> AsyncSteps:
    """Publish one value after the other in each of `AT_ONCE` tasks."""

    async def publish() -> int:
        return sum([(await client.publish(stock.topic, stock.values[0])).count for _ in range(CALLS)])

    while True:
        yield sum(await asyncio.gather(*(publish() for _ in range(AT_ONCE))))


async def aio_send(client: quoth.aio.Client, stock: Stock) -> AsyncSteps:
    """Send through a producer. Its end waits until everything is acknowledged."""
    async with client.producer(stock.topic) as producer:
        try:
            while True:
                for value in stock.values:
                    await producer.send(value)
                yield len(stock.values)
        finally:
            await producer.flush()


async def aio_batches(client: quoth.aio.Client, stock: Stock) -> AsyncSteps:
    """Read batches from the oldest record to the newest one."""
    while True:
        async for batch in client.batches(stock.topic, after=0):
            yield len(batch)


async def aio_read(client: quoth.aio.Client, stock: Stock) -> AsyncSteps:
    """Read page by page from the oldest record to the newest one, and look at each message."""
    after = 0
    while True:
        found = await client.read(stock.topic, after=after, limit=PAGE)
        pointers = [message.pointer for message in found]
        after = pointers[-1] if pointers else 0
        yield len(pointers)


async def aio_tail(client: quoth.aio.Client, stock: Stock) -> AsyncSteps:
    """Tail from the oldest record to the newest one."""
    while True:
        messages = 0
        async for _message in client.tail(stock.topic, after=0):
            messages += 1
            if messages == stock.stored:
                break
        yield messages


# -- both of them -------------------------------------------------------------------------------------------

WRITES: dict[str, tuple[Use, AsyncUse]] = {
    "publish([values])": (publish_many, aio_publish_many),
    "publish(value)": (publish_one, aio_publish_one),
    f"{AT_ONCE} publish(value) at once": (publish_in_threads, aio_publish_in_tasks),
    "send()": (send, aio_send),
}
READS: dict[str, tuple[Use, AsyncUse]] = {
    "batches()": (batches, aio_batches),
    f"read(limit={PAGE})": (read, aio_read),
    "tail()": (tail, aio_tail),
}

COLUMNS = (
    ReportColumn("method", "messages/s", width=25),
    ReportColumn("durability", "durability", width=10),
    ReportColumn("quoth", "quoth", lambda figure: count(figure.median), 10),
    ReportColumn("quoth_aio", "quoth.aio", lambda figure: count(figure.median), 10),
    ReportColumn("ratio_to_quoth", "of quoth", spread, 17),
)


def measure(
    on: options.OnBroker,
    clients: Clients,
    report: Report,
    payload: Payload,
    durabilities: Sequence[str],
    seconds: float,
    pairs: int,
) -> None:
    """Measure writing methods at each level, then reading ones, a row for each, both clients in turn."""

    def rate(durability: str, stored: Stock | None, task: Task, use: object) -> float:
        """Return messages a second. Each measurement of a write has a topic of its own.

        One topic for all of them would reach the limit on the producers that it knows.
        """
        stock = stored or Stock(on.topics.make(1, durability)[0], payload.values)
        done = clients.run(task, (on.broker.url, use, stock, seconds))
        if stock is not stored:
            on.topics.delete([stock.topic])
        return float(done[0].result / elapsed(done))

    def row(method: str, durability: str | None, uses: tuple[Use, AsyncUse], stored: Stock | None) -> None:
        take = partial(rate, durability or "written", stored)
        blocking, awaited = partial(take, _use_blocking, uses[0]), partial(take, _use_awaited, uses[1])
        measured = alternate(blocking, awaited, pairs)
        report.row(method, durability, *spreads(measured))

    for method, uses in WRITES.items():
        for durability in durabilities:
            row(method, durability, uses, None)
    (topic,) = on.topics.make()
    (cursors,) = on.topics.fill([topic], payload)
    stock = Stock(topic, payload.values, len(cursors) * payload.records)
    for method, uses in READS.items():
        row(method, None, uses, stock)


def _use_blocking(ready: Ready, url: str, use: Use, stock: Stock, seconds: float) -> int:
    with quoth.connect(url) as client:
        repeat(use(client, stock), min(WARM_UP_S, seconds))
        ready()
        return repeat(use(client, stock), seconds)


def _use_awaited(ready: Ready, url: str, use: AsyncUse, stock: Stock, seconds: float) -> int:
    async def run() -> int:
        async with quoth.aio.connect(url) as client:
            await aio_repeat(use(client, stock), min(WARM_UP_S, seconds))
            ready()
            return await aio_repeat(use(client, stock), seconds)

    return asyncio.run(run())


def repeat(steps: Steps, seconds: float) -> int:
    """Take steps for so many seconds, at least one; return the number of messages."""
    ends = perf_counter() + seconds
    with closing(steps):
        messages = next(steps)
        while perf_counter() < ends:
            messages += next(steps)
    return messages


async def aio_repeat(steps: AsyncSteps, seconds: float) -> int:
    """Take steps of the client for asyncio, as `repeat` does."""
    ends = perf_counter() + seconds
    async with aclosing(steps):
        messages = await anext(steps)
        while perf_counter() < ends:
            messages += await anext(steps)
    return messages


app = group()


@command(app, "api", "quoth bench api", "quoth bench api --durability written --size 1000")
def api(
    session: options.MeasuredBroker,
    records: options.Records = 100,
    size: options.Size = 100,
    lasts: Annotated[float, options.seconds("How long each measurement takes.")] = 0.5,
    pairs: options.Pairs = options.PAIRS_MIN,
    durability: options.Levels = None,
    directory: options.Directory = None,
) -> None:
    """Measure the methods of the client, blocking and with asyncio.

    Both clients are measured in turn. Each row shows the medians of their rates, and the median of the ratios
    of quoth.aio to quoth with the smallest and the largest one.
    """
    payload = Payload(records, size)
    conditions = {"batch": records, "value_bytes": size, "seconds": lasts, "pairs": pairs}
    with options.on_broker(session, directory) as on, Clients(1) as clients:
        report, levels = on.report("api", conditions, COLUMNS), durability or tuple(options.Level)
        measure(on, clients, report, payload, levels, lasts, pairs)
