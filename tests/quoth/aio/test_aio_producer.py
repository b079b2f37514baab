"""The producer in an event loop: it batches as the blocking one does, and never holds up the loop."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.client.loops import carriers, in_loop, no_carriers
from kit.client.records import publishes, values_there
from kit.deadlines import DEADLINE_S, soon
from quoth import ProducerError
from quoth.aio import Client, Producer


async def fill(producer: Producer, number: int) -> None:
    """Send so many records."""
    for one in range(number):
        await producer.send(b"%d" % one)


# -- sending ------------------------------------------------------------------------------------------------


@in_loop
async def test_sending_without_a_pause_lets_other_tasks_run(client: Client, topic: str) -> None:
    async with client.producer(topic) as producer:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        await fill(producer, 10_000)
        assert turns >= 9
        task.cancel()


@in_loop
async def test_cancelled_send_is_not_stored(meddler: Meddler, client: Client, topic: str) -> None:
    meddler.on_request = publishes
    producer = client.producer(topic, batch=1, max_buffer=1)
    await producer.send(b"a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.send(b"never"), 0.05)
    meddler.on_request = pass_on
    producer._inflight.again_at = 0.0
    await producer.send(b"b")
    await producer.close()
    assert await values_there(client, topic) == [b"a", b"b"]


# -- what became of it --------------------------------------------------------------------------------------


@in_loop
async def test_future_of_a_failed_batch_has_its_error_and_may_stay_unread(
    meddler: Meddler, client: Client, topic: str
) -> None:
    meddler.on_request = publishes
    producer = client.producer(topic, timeout=0.1)
    looked_at, passed_over = producer.future(), producer.future()
    await producer.send(b"a")
    with refused("timed_out"):
        await looked_at
    del passed_over
    with pytest.raises(ProducerError) as caught:
        await producer.close()
    assert caught.value.failures[0].values == [b"a"]


@in_loop
async def test_cancelling_a_future_does_not_cancel_its_record(client: Client, topic: str) -> None:
    async with client.producer(topic) as producer:
        future = producer.future()
        await producer.send(b"a")
        future.cancel()
    assert await values_there(client, topic) == [b"a"]


@in_loop
async def test_cancelled_flush_continues(meddler: Meddler, client: Client, topic: str) -> None:
    is_cancelled = threading.Event()
    meddler.on_request = lambda _: not is_cancelled.wait(DEADLINE_S)
    async with client.producer(topic, linger=60) as producer:
        await fill(producer, 3)
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        is_cancelled.set()
        await soon(lambda: _has_acknowledged(producer, 3), "it leaves although it could linger")


async def _has_acknowledged(producer: Producer, number: int) -> bool:
    return producer.acknowledged == number


# -- the end ------------------------------------------------------------------------------------------------


@in_loop
async def test_cancelled_close_accepts_no_records_and_the_next_one_finishes(
    meddler: Meddler, client: Client, topic: str
) -> None:
    meddler.on_request = publishes
    producer = client.producer(topic)
    await producer.send(b"a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 0.05)
    with refused("closed"):
        await producer.send(b"b")
    meddler.on_request = pass_on
    producer._inflight.again_at = 0.0
    await asyncio.gather(producer.close(), producer.close())
    assert carriers() == ["quoth-aio"]
    assert await values_there(client, topic) == [b"a"]


@in_loop
async def test_cancelled_block_ends_soon_and_delivers_what_it_can(client: Client, topic: str) -> None:
    client._timing.interrupted = DEADLINE_S  # it can, even on a slow machine

    async def block() -> None:
        async with client.producer(topic, linger=60) as producer:
            await producer.send(b"a")
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(block(), 0.05)
    assert await values_there(client, topic) == [b"a"]


@in_loop
async def test_an_open_producer_keeps_its_client(broker: BrokerProcess, topic: str) -> None:
    client = await quoth.aio.connect(broker.url)
    producer = client.producer(topic, linger=60)
    await producer.send(b"a")
    del client
    gc.collect()
    await producer.close()
    assert producer.acknowledged == 1
    del producer
    gc.collect()
    await soon(no_carriers, "the threads end")
