"""The methods of the client as `quoth bench api` uses them: what is counted is stored or read."""

from __future__ import annotations

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.client.loops import run
from quothbench.instruments import api
from quothbench.instruments.api import AsyncUse, Stock
from quothbench.load.topics import BenchTopics, Payload

SECONDS = 0.02


async def awaited(url: str, use: AsyncUse, stock: Stock) -> int:
    """Use the client for asyncio."""
    async with quoth.aio.connect(url) as client:
        return await api.aio_repeat(use(client, stock), SECONDS)


def test_counted_messages_are_stored(broker: BrokerProcess, topic: str) -> None:
    with quoth.connect(broker.url) as client:
        for number, (blocking, aio) in enumerate(api.WRITES.values()):
            stock = Stock(f"{topic}-{number}", Payload(10, 5).values)
            stored = api.repeat(blocking(client, stock), SECONDS)
            assert client.topic(stock.topic).count == stored > 0
            stored += run(awaited(broker.url, aio, stock))
            assert client.topic(stock.topic).count == stored


def test_reading_begins_anew_at_the_end(broker: BrokerProcess) -> None:
    payload = Payload(700, 10_000)
    with quoth.connect(broker.url) as client, BenchTopics(client) as topics:
        (topic,) = topics.make()
        (cursors,) = topics.fill([topic], payload)
        stock = Stock(topic, payload.values, len(cursors) * payload.records)
        assert stock.stored == 1_400
        for blocking, aio in api.READS.values():
            steps = blocking(client, stock)
            counted = [next(steps) for _ in range(6)]
            assert counted in ([1_400] * 6, [700] * 6, [1_000, 400, 0] * 2)
            assert run(awaited(broker.url, aio, stock)) >= counted[0]
