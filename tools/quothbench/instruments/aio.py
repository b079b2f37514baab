"""`quoth bench aio`: the client for asyncio, the blocking client, and a bare zmq.asyncio socket in turn.

The bare socket speaks the fast protocol as a program does that has no client: what it sends was encoded
beforehand, it decodes what it gets, and does nothing about silence, refusals, gaps or a broker that is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import zmq
import zmq.asyncio

import quoth
import quoth.aio
from quoth.reader import FETCH_BYTES
from quothbench.figures import Spread, rotate
from quothbench.instruments import api
from quothbench.instruments.api import WARM_UP_S, Budget, Stock
from quothbench.load import driver
from quothbench.load.clients import Clients, elapsed
from quothbench.load.driver import WINDOW, Frames
from quothbench.load.target import Target
from quothbench.load.topics import Topics
from quothbench.report import Column, Report, count, spread
from quothwire import batch
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetch, Fetched

Socket = zmq.asyncio.Socket
Counted = Coroutine[Any, Any, int]


class Uses(NamedTuple):
    """The same work, done with each of the three; each tells how many messages that were."""

    blocking: Callable[[quoth.Client, Stock, Budget], int]
    bare: Callable[[Socket, Stock, Budget], Counted]
    awaited: Callable[[quoth.aio.Client, Stock, Budget], Counted]


# -- the blocking client ------------------------------------------------------------------------------------


def publish(client: quoth.Client, stock: Stock, budget: Budget) -> int:
    """One value after the other."""
    return api.publish_one(client, stock, budget)[0]


def publish_in_threads(client: quoth.Client, stock: Stock, budget: Budget) -> int:
    """One value after the other in each of `WINDOW` threads."""
    with ThreadPoolExecutor(WINDOW) as pool:
        done = [pool.submit(publish, client, stock, budget) for _ in range(WINDOW)]
        return sum(one.result() for one in done)


def send(client: quoth.Client, stock: Stock, budget: Budget) -> int:
    """Through a producer."""
    return api.send(client, stock, budget)[0]


def batches(client: quoth.Client, stock: Stock, budget: Budget) -> int:
    """All batches, again and again."""
    return api.batches(client, stock, budget)[0]


def tail(client: quoth.Client, stock: Stock, budget: Budget) -> int:
    """All messages, again and again."""
    return api.tail(client, stock, budget)[0]


# -- the client for asyncio ---------------------------------------------------------------------------------


async def awaited_publish(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """One value after the other."""
    is_over, messages = budget.meter(), 0
    while not is_over(messages):
        messages += (await client.publish(stock.topic, stock.values[0])).count
    return messages


async def awaited_publish_in_tasks(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """One value after the other in each of `WINDOW` tasks."""
    return sum(await asyncio.gather(*(awaited_publish(client, stock, budget) for _ in range(WINDOW))))


async def awaited_send(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """Through a producer."""
    is_over, messages = budget.meter(), 0
    async with client.producer(stock.topic) as producer:
        while not is_over(messages):
            for value in stock.values:
                await producer.send(value)
            messages += len(stock.values)
    return messages


async def awaited_batches(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """All batches, again and again."""
    is_over, messages = budget.meter(), 0
    while not is_over(messages):
        async for found in client.batches(stock.topic):
            messages += len(found)
    return messages


async def awaited_tail(client: quoth.aio.Client, stock: Stock, budget: Budget) -> int:
    """All messages, again and again."""
    is_over, messages = budget.meter(), 0
    while not is_over(messages):
        wanted = messages + stock.stored
        async for _message in client.tail(stock.topic, after=0):
            messages += 1
            if messages == wanted:
                break
    return messages


# -- the bare socket ----------------------------------------------------------------------------------------


async def bare_publish(socket: Socket, stock: Stock, budget: Budget) -> int:
    """One value after the other."""
    return await _keep_window(socket, stock.topic, stock.values[:1], 1, budget)


async def bare_publish_at_once(socket: Socket, stock: Stock, budget: Budget) -> int:
    """One value each, `WINDOW` of them on their way."""
    return await _keep_window(socket, stock.topic, stock.values[:1], WINDOW, budget)


async def bare_send(socket: Socket, stock: Stock, budget: Budget) -> int:
    """Batches as a producer makes them, `WINDOW` of them on their way."""
    return await _keep_window(socket, stock.topic, stock.values, WINDOW, budget)


async def bare_batches(socket: Socket, stock: Stock, budget: Budget) -> int:
    """All batches, again and again."""
    is_over, messages, cursor = budget.meter(), 0, 0
    while not is_over(messages):
        found, cursor = await _fetch(socket, stock.topic, cursor)
        messages += sum(len(one.values) for one in found)
    return messages


async def bare_tail(socket: Socket, stock: Stock, budget: Budget) -> int:
    """All messages, again and again."""
    is_over, messages, cursor = budget.meter(), 0, 0
    while not is_over(messages):
        found, cursor = await _fetch(socket, stock.topic, cursor)
        for one in found:
            for _value in one.values:
                messages += 1
    return messages


async def _keep_window(socket: Socket, topic: str, values: list[bytes], window: int, budget: Budget) -> int:
    is_over, messages = budget.meter(), 0
    requests = driver.endless_publishes(topic, values)
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


async def _fetch(socket: Socket, topic: str, after: int) -> tuple[list[batch.Batch], int]:
    """The next batches, and the cursor behind them; from the beginning again where there are none."""
    request = Fetch(after=after, bytes_max=FETCH_BYTES)
    await socket.send_multipart([b"", *binary_codec.encode_request(request, 0, topic)])
    frames: Frames = await socket.recv_multipart()
    driver.correlation(frames)
    answer = binary_codec.decode_answer(frames[1:])
    reply = answer.reply
    assert isinstance(reply, Fetched)
    view, found, position = memoryview(answer.payload), list[batch.Batch](), 0
    while position < len(view):
        header = batch.parse_header(view, reply.log, position)
        found.append(batch.decode(view[position : position + header.size], reply.log))
        position += header.size
    return found, reply.next if found else 0


# -- all of them --------------------------------------------------------------------------------------------

WRITES = {
    "publish(value)": Uses(publish, bare_publish, awaited_publish),
    f"{WINDOW} publish(value) at once": Uses(
        publish_in_threads, bare_publish_at_once, awaited_publish_in_tasks
    ),
    "send(), batches of 1,000": Uses(send, bare_send, awaited_send),
}
READS = {
    "batches()": Uses(batches, bare_batches, awaited_batches),
    "tail()": Uses(tail, bare_tail, awaited_tail),
}
READ_AT = "written"
"""The durability of what is read."""
KINDS = ("blocking", "bare", "awaited")

COLUMNS = (
    Column("figure", "messages/s", width=25),
    Column("durability", "durability", width=10),
    Column("quoth", "quoth", lambda figure: count(figure.median), 10),
    Column("zmq_asyncio", "zmq.asyncio", lambda figure: count(figure.median), 11),
    Column("quoth_aio", "quoth.aio", lambda figure: count(figure.median), 10),
    Column("ratio_to_quoth", "of quoth", spread, 17),
    Column("ratio_to_zmq_asyncio", "of zmq.asyncio", spread, 17),
)


Stocks = Callable[[], AbstractContextManager[Stock]]
"""What one measurement is made with."""


class Bench:
    """Measures one figure after the other, each with all three in turn."""

    def __init__(
        self, target: Target, clients: Clients, topics: Topics, report: Report, values: list[bytes]
    ) -> None:
        self._target = target
        self._clients = clients
        self._topics = topics
        self._report = report
        self._values = values

    def run(self, durabilities: Sequence[str], budget: Budget, rounds: int) -> None:
        """Measure what writes at each level, then what reads, a row for each."""
        for name, uses in WRITES.items():
            for durability in durabilities:
                self._measure(name, durability, uses, partial(self._made, durability), budget, rounds)
        (topic,) = self._topics.make(1, READ_AT)
        (cursors,) = self._topics.fill([topic])
        stock = Stock(topic, self._values, len(cursors) * len(self._values))
        for name, uses in READS.items():
            self._measure(name, READ_AT, uses, lambda: nullcontext(stock), budget, rounds)

    @contextmanager
    def _made(self, durability: str) -> Iterator[Stock]:
        """A topic for one measurement: one that all wrote to would soon know more producers than it may."""
        (topic,) = self._topics.make(1, durability)
        yield Stock(topic, self._values)
        self._topics.delete([topic])

    def _measure(
        self, name: str, durability: str, uses: Uses, stocks: Stocks, budget: Budget, rounds: int
    ) -> None:
        def rate(kind: str) -> float:
            with stocks() as stock:
                done = self._clients.run(_use, (self._target.url, kind, uses, stock, budget))
            return float(done[0].result / elapsed(done))

        measured = rotate([partial(rate, kind) for kind in KINDS], rounds)
        self._report.row(
            name,
            durability,
            *(Spread.of(rates) for rates in zip(*measured, strict=True)),
            Spread.of([awaited / blocking for blocking, _, awaited in measured]),
            Spread.of([awaited / bare for _, bare, awaited in measured]),
        )


def _use(ready: Callable[[], None], url: str, kind: str, uses: Uses, stock: Stock, budget: Budget) -> int:
    warm = Budget(min(WARM_UP_S, budget.seconds), budget.messages)
    if kind == "blocking":
        with quoth.connect(url) as client:
            uses.blocking(client, stock, warm)
            ready()
            return uses.blocking(client, stock, budget)
    return asyncio.run(_use_in_loop(ready, url, kind, uses, stock, warm, budget))


async def _use_in_loop(
    ready: Callable[[], None], url: str, kind: str, uses: Uses, stock: Stock, warm: Budget, budget: Budget
) -> int:
    if kind == "awaited":
        async with quoth.aio.connect(url) as client:
            await uses.awaited(client, stock, warm)
            ready()
            return await uses.awaited(client, stock, budget)
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set(zmq.LINGER, 0)
        socket.connect(url)
        await uses.bare(socket, stock, warm)
        ready()
        return await uses.bare(socket, stock, budget)
