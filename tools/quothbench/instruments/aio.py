"""`quoth bench aio`: the blocking client, a bare zmq.asyncio socket and the client for asyncio in turn.

The bare socket speaks the fast protocol as a program without a client would: it sends frames that were
encoded beforehand, decodes the replies, and does not handle timeouts, errors, gaps or reconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Annotated, Any, NamedTuple

import zmq
import zmq.asyncio

import quoth
import quoth.aio
from quoth.reader import FETCH_BYTES
from quothbench import options
from quothbench.figures import Spread, rotate
from quothbench.instruments import api
from quothbench.instruments.api import Budget, Stock
from quothbench.load import driver
from quothbench.load.clients import Clients, Ready, elapsed
from quothbench.load.driver import WINDOW
from quothbench.load.rates import Counted, Payload
from quothbench.report import Report, ReportColumn, count, spread
from quothcli.cli.command import command, group
from quothwire import batch
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetch, Fetched

Socket = zmq.asyncio.Socket
Awaited = Callable[[quoth.aio.Client, Stock, Budget], Coroutine[Any, Any, int]]
Bare = Callable[[Socket, Stock, Budget], Coroutine[Any, Any, int]]


class Uses(NamedTuple):
    """The same work for each of the three. Each returns its number of messages."""

    blocking: api.Use
    bare: Bare
    awaited: Awaited


# -- the blocking client, beside the methods that `quoth bench api` measures --------------------------------


def publish_in_threads(client: quoth.Client, stock: Stock, budget: Budget) -> Counted:
    """Publish one value after the other in each of `WINDOW` threads."""
    with ThreadPoolExecutor(WINDOW) as pool:
        done = [pool.submit(api.publish_one, client, stock, budget) for _ in range(WINDOW)]
        return sum(one.result()[0] for one in done), []


# -- the client for asyncio ---------------------------------------------------------------------------------


async def _repeat(step: Callable[[], Awaitable[int]], budget: Budget) -> int:
    """Repeat a step, which returns its number of messages, until the budget is used up."""
    is_over, messages = budget.meter(), await step()
    while not is_over(messages):
        messages += await step()
    return messages


async def publish(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """Publish one value after the other."""

    async def publish() -> int:
        return (await client.publish(stock.topic, stock.values[0])).count

    return await _repeat(publish, budget)


async def publish_in_tasks(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """Publish one value after the other in each of `WINDOW` tasks."""
    return sum(await asyncio.gather(*(publish(client, stock, budget) for _ in range(WINDOW))))


async def send(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """Send through a producer."""
    async with client.producer(stock.topic) as producer:

        async def send() -> int:
            for value in stock.values:
                await producer.send(value)
            return len(stock.values)

        return await _repeat(send, budget)


async def batches(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """Read all batches, again and again."""

    async def read() -> int:
        return sum([len(found) async for found in client.batches(stock.topic)])

    return await _repeat(read, budget)


async def tail(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """Tail all messages, again and again."""

    async def read() -> int:
        count = 0
        async for _message in client.tail(stock.topic, after=0):
            count += 1
            if count == stock.stored:
                break
        return count

    return await _repeat(read, budget)


# -- the bare socket ----------------------------------------------------------------------------------------


async def bare_write(window: int, size: int | None, socket: Socket, stock: Stock, budget: Budget) -> int:
    """Publish `size` values, or all, with each request, `window` requests on their way."""
    values = stock.values[:size]
    is_over, messages = budget.meter(), 0
    requests = driver.endless_publishes(stock.topic, values)
    for frames in islice(requests, window):
        await socket.send_multipart(frames)
    on_their_way = window
    while on_their_way:
        driver.correlation(await socket.recv_multipart())
        messages += len(values)
        if is_over(messages):
            on_their_way -= 1
        else:
            await socket.send_multipart(next(requests))
    return messages


async def bare_read(one_by_one: bool, socket: Socket, stock: Stock, budget: Budget) -> int:
    """Read all batches, again and again. one_by_one: look at each message."""
    cursor = 0

    async def fetch() -> int:
        nonlocal cursor
        (request,) = driver.numbered(Fetch(after=cursor, bytes_max=FETCH_BYTES), stock.topic, 1)
        await socket.send_multipart(request)
        frames: driver.Frames = await socket.recv_multipart()
        driver.correlation(frames)
        answer = binary_codec.decode_answer(frames[1:])
        reply = answer.reply
        assert isinstance(reply, Fetched)
        found = [batch.decode(raw, reply.log).values for raw in batch.split(answer.payload, reply.log)]
        cursor = reply.next if found else 0  # it begins anew at the end of the topic
        return sum(1 for values in found for _ in values) if one_by_one else sum(map(len, found))

    return await _repeat(fetch, budget)


# -- all of them --------------------------------------------------------------------------------------------

WRITES = {
    "publish(value)": Uses(api.publish_one, partial(bare_write, 1, 1), publish),
    f"{WINDOW} publish(value) at once": Uses(
        publish_in_threads, partial(bare_write, WINDOW, 1), publish_in_tasks
    ),
    "send(), batches of 1,000": Uses(api.send, partial(bare_write, WINDOW, None), send),
}
READS = {
    "batches()": Uses(api.batches, partial(bare_read, False), batches),
    "tail()": Uses(api.tail, partial(bare_read, True), tail),
}
READ_AT = "written"
"""The durability of the records that are read."""

COLUMNS = (
    ReportColumn("figure", "messages/s", width=25),
    ReportColumn("durability", "durability", width=10),
    ReportColumn("quoth", "quoth", lambda figure: count(figure.median), 10),
    ReportColumn("zmq_asyncio", "zmq.asyncio", lambda figure: count(figure.median), 11),
    ReportColumn("quoth_aio", "quoth.aio", lambda figure: count(figure.median), 10),
    ReportColumn("ratio_to_quoth", "of quoth", spread, 17),
    ReportColumn("ratio_to_zmq_asyncio", "of zmq.asyncio", spread, 17),
)


def measure(
    on: options.OnBroker,
    clients: Clients,
    report: Report,
    values: list[bytes],
    durabilities: Sequence[str],
    budget: Budget,
    rounds: int,
) -> None:
    """Measure writing at each level, then reading, a row for each, with all three in turn."""

    def rate(durability: str, stored: Stock | None, task: Callable[..., int], use: object) -> float:
        """Return messages a second. Each measurement of a write has a topic of its own.

        One topic for all of them would reach the bound on the producers that it knows.
        """
        stock = stored or Stock(on.topics.make(1, durability)[0], values)
        done = clients.run(task, (on.broker.url, use, stock, budget))
        if stock is not stored:
            on.topics.delete([stock.topic])
        return float(done[0].result / elapsed(done))

    def row(name: str, durability: str, uses: Uses, stored: Stock | None) -> None:
        kinds = (_use_blocking, uses.blocking), (_use_bare, uses.bare), (_use_awaited, uses.awaited)
        measured = rotate([partial(rate, durability, stored, *kind) for kind in kinds], rounds)
        report.row(
            name,
            durability,
            *(Spread.of(rates) for rates in zip(*measured, strict=True)),
            Spread.of_ratios([(blocking, awaited) for blocking, _, awaited in measured]),
            Spread.of_ratios([(bare, awaited) for _, bare, awaited in measured]),
        )

    for name, uses in WRITES.items():
        for durability in durabilities:
            row(name, durability, uses, None)
    stock = Stock.stored_by(on.topics, values)
    for name, uses in READS.items():
        row(name, READ_AT, uses, stock)


def _use_blocking(ready: Ready, url: str, use: api.Use, stock: Stock, budget: Budget) -> int:
    with quoth.connect(url) as client:
        use(client, stock, budget.warm_up)
        ready()
        return use(client, stock, budget)[0]


def _use_awaited(ready: Ready, url: str, use: Awaited, stock: Stock, budget: Budget) -> int:
    async def run() -> int:
        async with quoth.aio.connect(url) as client:
            await use(client, stock, budget.warm_up)
            ready()
            return await use(client, stock, budget)

    return asyncio.run(run())


def _use_bare(ready: Ready, url: str, use: Bare, stock: Stock, budget: Budget) -> int:
    async def run() -> int:
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.set(zmq.LINGER, 0)
            socket.connect(url)
            await use(socket, stock, budget.warm_up)
            ready()
            return await use(socket, stock, budget)

    return asyncio.run(run())


RECORDS = 1_000
"""Messages of a batch, as a producer makes them."""


app = group()


@command(app, "aio", "quoth bench aio", "quoth bench aio --rounds 21 --durability written")
def aio(
    session: options.MeasuredBroker,
    size: options.Size = 100,
    lasts: Annotated[float, options.seconds("How long each measurement takes.")] = 0.5,
    rounds: Annotated[
        int, options.number("rounds", "Measurements of each of the three.")
    ] = options.PAIRS_MIN,
    durability: options.Levels = None,
    directory: options.Directory = None,
) -> None:
    """Compare quoth.aio with quoth and with bare zmq.asyncio.

    The three are measured in turn. Each row shows the medians of their rates, and the median of the ratios of
    quoth.aio to each of the others with the smallest and the largest one. The bare socket sends frames that
    were encoded beforehand, decodes the replies, and does nothing else.
    """
    payload = Payload(RECORDS, size)
    conditions = {"value_bytes": size, "seconds": lasts, "rounds": rounds}
    with options.on_broker(session, directory, payload) as on, Clients(1) as clients:
        report = on.report("aio", conditions, COLUMNS)
        levels = durability or tuple(options.Level)
        measure(on, clients, report, payload.values, levels, Budget(lasts), rounds)
