"""`quoth bench aio`: the three clients do the same work in turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.client.loops import run
from kit.machine.commands import Command
from kit.scale import long_form
from quothbench.figures import rotate
from quothbench.instruments.aio import READS, WRITES, Uses
from quothbench.instruments.api import Budget, Stock
from quothbench.load.rates import Payload
from quothbench.load.topics import Topics

EXPECTED = [(name, "written") for name in (*WRITES, *READS)]


def check(row: dict[str, Any]) -> None:
    """Are these figures of real measurements, and do they fit each other?"""
    rates = [row[name] for name in ("quoth", "zmq_asyncio", "quoth_aio")]
    assert all(0 < rate["low"] <= rate["median"] <= rate["high"] for rate in rates)
    for name, rate in (("ratio_to_quoth", rates[0]), ("ratio_to_zmq_asyncio", rates[1])):
        assert row[name]["median"] == pytest.approx(rates[2]["median"] / rate["median"])


def test_every_row_with_its_durability(alone: Command, broker: BrokerProcess) -> None:
    typed = "bench aio --rounds 1 --seconds 0.02 --durability written --format json"
    told = alone(*typed.split(), "--url", broker.url)
    assert (told.status, told.err) == (0, "")
    conditions, *rows = told.objects
    assert (conditions["benchmark"], conditions["rounds"], conditions["value_bytes"]) == ("aio", 1, 100)
    assert [(row["figure"], row["durability"]) for row in rows] == EXPECTED
    for row in rows:
        check(row)
    with quoth.connect(broker.url) as client:
        assert client.topics() == []


@long_form
def test_on_a_broker_of_its_own_as_text(alone: Command, tmp_path: Path) -> None:
    typed = "bench aio --rounds 1 --seconds 0.02 --durability synced --size 10"
    told = alone(*typed.split(), "--dir", str(tmp_path))
    assert (told.status, told.err) == (0, "")
    rows = told.lines[next(row for row, line in enumerate(told.lines) if line.startswith("messages/s")) + 1 :]
    assert [line[:25].strip() for line in rows] == [name for name, _ in EXPECTED]
    assert not list(tmp_path.iterdir())


# -- its parts ------------------------------------------------------------------------------------


def done(uses: Uses, url: str, stock: Stock, budget: Budget) -> list[int]:
    """What each of the three says that it has done."""

    async def awaited() -> int:
        async with quoth.aio.connect(url) as client:
            return await uses.awaited(client, stock, budget)

    async def bare() -> int:
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.set(zmq.LINGER, 0)
            socket.connect(url)
            return await uses.bare(socket, stock, budget)

    with quoth.connect(url) as client:
        return [uses.blocking(client, stock, budget), asyncio.run(bare()), run(awaited())]


@pytest.mark.parametrize("uses", WRITES.values(), ids=WRITES)
def test_what_is_counted_is_stored(broker: BrokerProcess, topic: str, uses: Uses) -> None:
    counted = done(uses, broker.url, Stock(topic, Payload(10, 5).values), Budget(messages=50))
    assert min(counted) >= 50
    with quoth.connect(broker.url) as client:
        assert client.topic(topic).count == sum(counted)


@pytest.mark.parametrize("uses", READS.values(), ids=READS)
def test_reading_goes_round_until_it_is_enough(broker: BrokerProcess, uses: Uses) -> None:
    payload = Payload(700, 10_000)
    with quoth.connect(broker.url) as client, Topics(client, payload) as topics:
        (name,) = topics.make(1)
        (cursors,) = topics.fill([name])
        stock = Stock(name, payload.values, len(cursors) * payload.records)
        for counted in done(uses, broker.url, stock, Budget(messages=3_000)):
            assert 3_000 <= counted <= 3_000 + stock.stored


def test_each_of_several_begins_in_its_turn_after_a_round_that_does_not_count() -> None:
    order: list[str] = []

    def take(name: str) -> str:
        order.append(name)
        return f"{name}{len(order)}"

    measured = rotate([lambda: take("a"), lambda: take("b"), lambda: take("c")], 2)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert measured == [["a6", "b4", "c5"], ["a8", "b9", "c7"]]
