"""The producer in an event loop: it batches as the blocking one does, and never holds up the loop."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, Wire, pass_on
from kit.client.loops import carriers, in_loop, no_carriers, run
from kit.deadlines import DEADLINE_S, soon
from quoth import ProducerError, RequestError, Unavailable
from quoth.aio import Client, Producer
from quoth.aio import producer as aio_producer
from quoth.connection.send_loop import SendLoop
from quothwire.protocol.messages import Operation, Published


async def values(client: Client, topic: str) -> list[bytes]:
    """All values of a topic."""
    return [message.value for message in await client.read(topic, limit=100_000)]


def mute(meddler: Meddler) -> None:
    """Let no publish reach the broker."""
    meddler.on_request = lambda call: call.operation is Operation.PUBLISH


async def fill(producer: Producer, number: int) -> None:
    """Send so many records."""
    for one in range(number):
        await producer.send(b"%d" % one)


# -- sending ------------------------------------------------------------------------------------------------


@in_loop
async def test_everything_that_is_sent_arrives_in_order(broker: BrokerProcess, topic: str) -> None:
    async with quoth.aio.connect(broker.url) as client:
        async with client.producer(topic, batch=7) as producer:
            for number in range(1_000):
                await producer.send(b"%d" % number, key=b"k", headers={"n": b"%d" % number})
        found = await client.read(topic)
        assert [message.value for message in found] == [b"%d" % number for number in range(1_000)]
        assert (found[5].key, found[5].headers) == (b"k", {"n": b"5"})
        assert (producer.acknowledged, producer.last) == (1_000, found[-1].pointer)


@in_loop
async def test_tasks_share_a_producer_and_each_keeps_its_order(broker: BrokerProcess, topic: str) -> None:
    async with quoth.aio.connect(broker.url) as client:

        async def send(producer: Producer, me: int) -> None:
            for number in range(200):
                await producer.send(b"%d %d" % (me, number))
                if number % 10 == me:
                    await producer.flush()

        async with client.producer(topic, batch=5, max_buffer=20) as producer:
            await asyncio.gather(*(send(producer, me) for me in range(10)))
        found = await values(client, topic)
        assert len(found) == 2_000
        for me in range(10):
            mine = [value for value in found if value.startswith(b"%d " % me)]
            assert mine == [b"%d %d" % (me, number) for number in range(200)]


@in_loop
async def test_sending_without_a_pause_leaves_others_a_turn(broker: BrokerProcess, topic: str) -> None:
    async with quoth.aio.connect(broker.url) as client, client.producer(topic) as producer:
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
async def test_full_buffer_lets_the_sender_wait_and_nobody_else(meddler: Meddler, topic: str) -> None:
    async with quoth.aio.connect(meddler.url) as client:
        mute(meddler)
        producer = client.producer(topic, batch=10, max_buffer=10, linger=0)
        await fill(producer, 10)
        several = [asyncio.ensure_future(producer.send(b"later %d" % number)) for number in range(3)]
        for _ in range(3):
            assert await client.ping() > 0
        assert not any(one.done() for one in several)
        meddler.on_request = pass_on
        producer._pipeline.again_at = 0.0
        await asyncio.gather(*several)
        await producer.close()
        found = await values(client, topic)
        assert found[:10] == [b"%d" % number for number in range(10)]
        assert sorted(found[10:]) == [b"later %d" % number for number in range(3)]


@in_loop
async def test_sender_does_not_wait_for_ever(
    meddler: Meddler, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SendLoop, "_is_expired", lambda *_: False)
    async with quoth.aio.connect(meddler.url) as client:
        mute(meddler)
        producer = client.producer(topic, batch=1, max_buffer=1, timeout=0.1)
        await fill(producer, 1)
        with pytest.raises(Unavailable, match="not taken"):
            await producer.send(b"x")
        with pytest.raises(ProducerError):
            await producer.close(0)


@in_loop
async def test_full_buffer_raises_where_that_is_asked_for(meddler: Meddler, topic: str) -> None:
    async with quoth.aio.connect(meddler.url) as client:
        mute(meddler)
        producer = client.producer(topic, batch=5, max_buffer=5, on_full="raise")
        await fill(producer, 5)
        with pytest.raises(Unavailable) as caught:
            await producer.send(b"x")
        assert caught.value.code == "busy"
        assert "not taken" in caught.value.text
        with pytest.raises(ProducerError):
            await producer.close(0)


@in_loop
async def test_cancelled_send_was_not_taken(meddler: Meddler, topic: str) -> None:
    async with quoth.aio.connect(meddler.url) as client:
        mute(meddler)
        producer = client.producer(topic, batch=1, max_buffer=1)
        await producer.send(b"a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send(b"never"), 0.05)
        meddler.on_request = pass_on
        producer._pipeline.again_at = 0.0
        await producer.send(b"b")
        await producer.close()
        assert await values(client, topic) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [({"value": "text"}, "bad_request"), ({"value": b"a", "key": 1}, "bad_request"),
     ({"value": bytes(2**24)}, "too_large")],
)  # fmt: skip
def test_wrong_arguments_are_refused_at_once_and_harm_nothing(
    broker: BrokerProcess, topic: str, arguments: dict[str, Any], code: str
) -> None:
    async def main() -> None:
        async with quoth.aio.connect(broker.url) as client:
            async with client.producer(topic) as producer:
                await producer.send(b"before")
                with pytest.raises(RequestError) as caught:
                    await producer.send(**arguments)
                assert caught.value.code == code
                await producer.send(b"after")
            assert await values(client, topic) == [b"before", b"after"]
            for options in ({"batch": 0}, {"on_full": "explode"}, {"linger": "x"}):
                with refused("bad_request"):
                    client.producer(topic, **options)

    run(main())


# -- what became of it --------------------------------------------------------------------------------------


@in_loop
async def test_future_is_that_of_the_next_record_and_its_batch(broker: BrokerProcess, topic: str) -> None:
    async with quoth.aio.connect(broker.url) as client, client.producer(topic, linger=60) as producer:
        await producer.send(b"a")
        future = producer.future()
        await producer.send(b"b")
        assert not future.done()
        await producer.flush()
        assert (await future).count == 2
        assert (await future).last == producer.last


@in_loop
async def test_future_of_a_batch_that_failed_has_its_error_and_nobody_has_to_look_at_it(
    meddler: Meddler, topic: str
) -> None:
    async with quoth.aio.connect(meddler.url) as client:
        mute(meddler)
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
async def test_future_that_is_cancelled_takes_nothing_back(broker: BrokerProcess, topic: str) -> None:
    async with quoth.aio.connect(broker.url) as client:
        async with client.producer(topic) as producer:
            future = producer.future()
            await producer.send(b"a")
            future.cancel()
        assert await values(client, topic) == [b"a"]


@in_loop
async def test_flush_returns_when_everything_is_stored(broker: BrokerProcess, topic: str) -> None:
    async with quoth.aio.connect(broker.url) as client, client.producer(topic, linger=60) as producer:
        await asyncio.gather(producer.flush(), producer.flush())
        for number in range(3):
            await fill(producer, 10)
            await asyncio.gather(producer.flush(), producer.flush(), producer.flush(DEADLINE_S))
            assert producer.acknowledged == 10 * (number + 1)


@in_loop
async def test_flush_that_takes_too_long_says_so_and_what_was_sent_is_still_on_its_way(
    meddler: Meddler, topic: str
) -> None:
    async with quoth.aio.connect(meddler.url) as client:
        mute(meddler)
        producer = client.producer(topic)
        await fill(producer, 3)
        with refused("timed_out"):
            await producer.flush(0.1)
        meddler.on_request = pass_on
        producer._pipeline.again_at = 0.0
        await producer.close()
        assert len(await values(client, topic)) == 3


@in_loop
async def test_cancelled_flush_goes_on(broker: BrokerProcess, topic: str) -> None:
    async with quoth.aio.connect(broker.url) as client, client.producer(topic, linger=60) as producer:
        await fill(producer, 3)
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        await soon(lambda: _has_acknowledged(producer, 3), "it leaves although it could linger")


async def _has_acknowledged(producer: Producer, number: int) -> bool:
    return producer.acknowledged == number


# -- the end ------------------------------------------------------------------------------------------------


@in_loop
async def test_closed_producer_refuses_everything(broker: BrokerProcess, topic: str) -> None:
    async with quoth.aio.connect(broker.url) as client:
        producer = client.producer(topic)
        await producer.send(b"a")
        await producer.close()
        await producer.close()
        assert carriers() == ["quoth-aio"]
        for call in (lambda: producer.send(b"b"), producer.flush, producer.future):
            with refused("closed"):
                await call()
        assert await values(client, topic) == [b"a"]


@in_loop
async def test_closing_with_a_timeout_tells_what_was_left_and_how_certain_that_is(
    meddler: Meddler, topic: str
) -> None:
    async with quoth.aio.connect(meddler.url) as client:
        meddler.on_reply = lambda call, answer: isinstance(answer.reply, Published)
        producer = client.producer(topic)
        await producer.send(b"a")
        await soon(lambda: _is_asked(meddler), "it is on its way")
        with pytest.raises(ProducerError) as caught:
            await producer.close(0.2)
        (failure,) = caught.value.failures
        assert (failure.values, failure.outcome) == ([b"a"], "unknown")
        await producer.close()


async def _is_asked(meddler: Meddler) -> bool:
    return any(call.operation is Operation.PUBLISH for call in meddler.requests)


@in_loop
async def test_cancelled_close_takes_nothing_more_and_the_next_one_ends_it(
    meddler: Meddler, topic: str
) -> None:
    async with quoth.aio.connect(meddler.url) as client:
        mute(meddler)
        producer = client.producer(topic)
        await producer.send(b"a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.05)
        with refused("closed"):
            await producer.send(b"b")
        meddler.on_request = pass_on
        producer._pipeline.again_at = 0.0
        await asyncio.gather(producer.close(), producer.close())
        assert carriers() == ["quoth-aio"]
        assert await values(client, topic) == [b"a"]


@in_loop
async def test_block_that_is_cancelled_is_left_soon_and_delivers_what_it_can(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio_producer, "INTERRUPTED_S", DEADLINE_S)  # it can, even on a slow machine
    async with quoth.aio.connect(broker.url) as client:

        async def block() -> None:
            async with client.producer(topic, linger=60) as producer:
                await producer.send(b"a")
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(block(), 0.05)
        assert await values(client, topic) == [b"a"]


@in_loop
async def test_exception_in_the_block_comes_out_and_what_was_sent_is_delivered(
    broker: BrokerProcess, topic: str
) -> None:
    async with quoth.aio.connect(broker.url) as client:

        async def block() -> None:
            async with client.producer(topic, linger=60) as producer:
                await producer.send(b"a")
                raise ValueError("of the test")

        with pytest.raises(ValueError, match="of the test"):
            await block()
        assert await values(client, topic) == [b"a"]


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


@in_loop
async def test_closing_the_client_ends_an_open_producer_which_tells_what_it_had(
    wire: Wire, topic: str
) -> None:
    async with quoth.aio.connect(wire.url) as client:
        producer = client.producer(topic, linger=60)
        await producer.send(b"never sent")
        await client.close()
        with pytest.raises(ProducerError) as caught:
            await producer.flush(DEADLINE_S)
        (failure,) = caught.value.failures
        assert (failure.values, failure.error.code) == ([b"never sent"], "closed")
        with refused("closed"):
            await producer.send(b"more")
        await producer.close()
