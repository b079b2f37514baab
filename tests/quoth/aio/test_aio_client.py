"""One thread carries everything of an event loop: many calls at once, and how a client begins and ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler
from kit.client.loops import carriers, in_loop
from kit.client.records import publishes, take
from kit.deadlines import DEADLINE_S, soon
from quoth import Disconnected, Gap
from quoth.aio import Client
from quoth.aio.client import PUBLISHES_MAX
from quoth.aio.io_thread import ASKED_MAX
from quoth.connection.connection import Link
from quoth.core import paging

# -- many at once -------------------------------------------------------------------------------------------


@in_loop
async def test_publish_that_times_out_in_the_queue_reports_that_nothing_was_stored(
    meddler: Meddler, client: Client, topic: str
) -> None:
    meddler.on_request = publishes
    stuck = [asyncio.ensure_future(client.publish(topic, b"x")) for _ in range(PUBLISHES_MAX)]
    await asyncio.sleep(0)  # they begin
    with pytest.raises(Disconnected) as caught:
        await client.publish(topic, b"y", timeout=0.2)
    assert caught.value.code == "timed_out"
    assert "nothing of it was stored" in caught.value.hint
    for one in stuck:
        one.cancel()


@pytest.mark.parametrize("links_max", [64, 2])
@in_loop
async def test_a_connection_carries_as_many_requests_as_a_broker_keeps_replies_for(
    client: Client, topic: str, links_max: int
) -> None:
    """Beyond the most connections requests share them all the same."""
    client._io_thread.links_max = links_max
    await client.create_topic(topic)
    tails = [await client.tail(topic) for _ in range(4 * ASKED_MAX)]
    waiting = asyncio.gather(*(take(one, 1) for one in tails))
    await soon(lambda: _has_asked(client, len(tails)), "all fetches are on their way")
    await client.publish(topic, b"x")
    assert await waiting == [[b"x"]] * len(tails)
    assert min(4, links_max) <= len(client._io_thread._links) <= min(5, links_max)


async def _has_asked(client: Client, requests: int) -> bool:
    return sum(len(one.asked) for one in client._io_thread._links) == requests


@in_loop
async def test_pages_that_are_at_hand_let_other_tasks_run(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is awaited for them."""
    monkeypatch.setattr(paging, "KEPT_S", 60.0)
    await client.publish(topic, [b"x"] * 1_000)
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(len(pages))
            await asyncio.sleep(0)

    pages: list[int] = []
    task, after = asyncio.ensure_future(other()), 0
    while found := await client.read(topic, after=after, limit=10):
        pages.append(len(found))
        after = found[-1].pointer
    task.cancel()
    assert len(pages) == 100
    assert set(range(1, 100)) <= set(turns)


def test_client_works_in_uvloop(broker: BrokerProcess, topic: str) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> list[bytes]:
        async with quoth.aio.connect(broker.url) as client:
            tail = await client.tail(topic)
            async with client.producer(topic) as producer:
                await producer.send(b"a")
            await client.publish(topic, b"b")
            return await take(tail, 2)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == [b"a", b"b"]


# -- a broker that goes and comes ---------------------------------------------------------------------------


@in_loop
async def test_restarts_lose_and_repeat_no_record_of_many_tasks(
    start_broker: StartBroker, rng: random.Random
) -> None:
    broker = start_broker()
    publishers, each = 20, 30
    async with quoth.aio.connect(broker.url, timeout=60.0) as client:
        gaps: list[Gap] = []
        tails = [await client.tail("t", on_gap=gaps.append) for _ in range(20)]
        waiting = asyncio.gather(*(take(one, publishers * each) for one in tails))

        async def publish(me: int) -> None:
            for number in range(each):
                await client.publish("t", b"%d %d" % (me, number))

        publishing = asyncio.gather(*(publish(me) for me in range(publishers)))
        assert carriers() == ["quoth-aio"], "one thread serves all of them"
        for _ in range(3):
            await asyncio.sleep(rng.uniform(0, 0.2))  # any moment
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.restart)
        await publishing
        found = await waiting
        assert gaps == []
    everything = {b"%d %d" % (me, number) for me in range(publishers) for number in range(each)}
    assert set(found[0]) == everything
    assert all(one == found[0] for one in found)
    for me in range(publishers):
        mine = [value for value in found[0] if value.startswith(b"%d " % me)]
        assert mine == [b"%d %d" % (me, number) for number in range(each)]


@pytest.mark.parametrize("given_up", ["cancelled", "timed out"])
@in_loop
async def test_requests_given_up_during_an_outage_are_not_sent_later(
    start_broker: StartBroker, given_up: str
) -> None:
    """Neither is anything else lost that was on the same connection."""
    broker = start_broker()
    async with quoth.aio.connect(broker.url, timeout=DEADLINE_S) as client:
        client._timing.resend = 10 * DEADLINE_S  # so nothing is sent again for the want of an answer
        tail = await client.tail("kept")
        waiting = asyncio.ensure_future(take(tail, 1))
        await soon(lambda: _waits(client.status, 1), "it waits")
        await asyncio.to_thread(broker.kill)
        await soon(lambda: _is_lost(client), "the loss is noticed")
        lost = client._io_thread._links[0].link
        kept = asyncio.ensure_future(client.publish("kept", b"a"))
        if given_up == "cancelled":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.publish("given up", b"x"), 0.1)
        else:
            with refused("disconnected"):
                await client.publish("given up", b"x", timeout=0.1)
        await soon(lambda: _is_replaced(client, lost), "what was given up is in no queue")
        await asyncio.to_thread(broker.restart)
        assert (await kept).count == 1
        assert await waiting == [b"a"]
        assert await client.topics() == ["kept"]
        assert len(client._io_thread._links) == 1


async def _is_lost(client: Client) -> bool:
    return client._io_thread._links[0].link.connected is False


async def _is_replaced(client: Client, link: Link) -> bool:
    return client._io_thread._links[0].link is not link


async def _waits(status: Callable[[], Awaitable[quoth.Status]], number: int) -> bool:
    return (await status()).waits == number


# -- beginning ----------------------------------------------------------------------------------------------


@in_loop
async def test_connecting_is_awaited_or_entered(broker: BrokerProcess) -> None:
    client = await quoth.aio.connect(broker.url)
    async with client:
        assert await client.ping() > 0
    async with quoth.aio.connect(broker.url, timeout=30.0) as entered:
        assert (entered.url, entered.timeout) == (broker.url, 30.0)
    with refused("closed"):
        await entered.ping()


@in_loop
async def test_connecting_that_is_cancelled_leaves_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.freeze()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(quoth.aio.connect(broker.url), 0.1)
