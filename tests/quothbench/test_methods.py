"""The methods of the client as benchmarks use them: what is counted is stored or read."""

from __future__ import annotations

import asyncio

import zmq
import zmq.asyncio

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.client.loops import run
from quothbench.instruments import aio, api
from quothbench.instruments.aio import Uses
from quothbench.instruments.api import Budget, Stock
from quothbench.load.rates import Payload
from quothbench.load.topics import BenchTopics


def done(uses: Uses, url: str, stock: Stock, budget: Budget) -> list[int]:
    """The messages that each of the three counts."""

    async def awaited() -> int:
        async with quoth.aio.connect(url) as client:
            return await uses.awaited(client, stock, budget)

    async def bare() -> int:
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.set(zmq.LINGER, 0)
            socket.connect(url)
            return await uses.bare(socket, stock, budget)

    with quoth.connect(url) as client:
        return [uses.blocking(client, stock, budget)[0], asyncio.run(bare()), run(awaited())]


def test_counted_messages_are_stored(broker: BrokerProcess, topic: str) -> None:
    with quoth.connect(broker.url) as client:
        for number, use in enumerate(api.WRITES.values()):
            name = f"{topic}-{number}"
            messages, took = use(client, Stock(name, Payload(10, 5).values), Budget(messages=25))
            assert messages == client.topic(name).count
            assert 25 <= messages <= 30
            assert sum(took) >= 0
        for number, uses in enumerate(aio.WRITES.values()):
            name = f"{topic}-aio-{number}"
            counted = done(uses, broker.url, Stock(name, Payload(10, 5).values), Budget(messages=50))
            assert min(counted) >= 50
            assert client.topic(name).count == sum(counted)


def test_reading_begins_anew_until_the_budget_is_used_up(broker: BrokerProcess) -> None:
    payload = Payload(700, 10_000)
    with quoth.connect(broker.url) as client, BenchTopics(client, payload) as topics:
        stock = Stock.stored_by(topics, payload.values)
        assert stock.stored == 1_400
        for use in api.READS.values():
            messages, _ = use(client, stock, Budget(messages=3_000))
            assert 3_000 <= messages <= 3_000 + api.PAGE
        for uses in aio.READS.values():
            for counted in done(uses, broker.url, stock, Budget(messages=3_000)):
                assert 3_000 <= counted <= 3_000 + stock.stored
