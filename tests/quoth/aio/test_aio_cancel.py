"""Waits in an event loop that are cancelled at any moment: nothing is lost, nothing is disturbed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest

from kit.broker.proxies import Meddler, pass_on
from kit.client.loops import in_loop
from kit.client.records import numbered, publishes, values_there
from kit.deadlines import soon
from kit.scale import times
from quoth import RequestError
from quoth.aio import Client, Reading, Tail
from quoth.aio.client import PUBLISHES_MAX

T = TypeVar("T")
Tailing = Callable[..., Tail | Reading]

tailings = pytest.mark.parametrize("tailing", [Client.tail, Client.tail_many])


async def cancelled(waiting: asyncio.Future[T]) -> None:
    """Cancel it, and see to it that it was."""
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def patiently(iterator: AsyncIterator[T], rng: random.Random) -> T:
    """The next one, however often the wait for it is given up."""
    while True:
        try:
            return await asyncio.wait_for(anext(iterator), rng.choice((0, 1e-4, 1e-3, 0.01)))
        except TimeoutError:
            continue


# -- iterators ----------------------------------------------------------------------------------------------


@tailings
@in_loop
async def test_iterator_that_another_task_closes_ends(client: Client, topic: str, tailing: Tailing) -> None:
    await client.publish(topic, b"seen")
    tail = tailing(client, topic, after=0)
    assert (await anext(tail)).value == b"seen"
    waiting = asyncio.ensure_future(anext(tail, None))
    await asyncio.sleep(0)
    await tail.aclose()
    assert await asyncio.wait_for(waiting, 10) is None
    assert await anext(tail, None) is None
    await soon(lambda: _asks_nothing(client), "nothing is asked for any more")


@pytest.mark.parametrize("how", ["tail", "tail_many", "ordered"])
@in_loop
async def test_tail_with_interrupted_waits_yields_every_message_once(
    client: Client, topic: str, rng: random.Random, how: str
) -> None:
    names = [topic] if how == "tail" else [f"{topic}.{letter}" for letter in "abc"]
    number_of = times(150, 2_000)
    for name in names:
        await client.create_topic(name)
    tail = await (
        client.tail(topic) if how == "tail" else client.tail_many(f"{topic}.*", ordered=how == "ordered")
    )

    async def publish(name: str, rng: random.Random) -> None:
        for number in range(number_of):
            await client.publish(name, b"%d" % number)
            await asyncio.sleep(rng.choice((0, 0, 1e-3, 2e-3)))

    publishing = asyncio.gather(*(publish(name, random.Random(rng.random())) for name in names))
    found = [await patiently(tail, rng) for _ in range(number_of * len(names))]
    await publishing
    for name in names:
        assert [one.value for one in found if one.topic == name] == numbered(number_of)
    if how == "ordered":
        assert isinstance(tail, Reading)
        assert tail.late == 0
        assert found == sorted(found, key=lambda one: (one.pointer, one.topic))


@in_loop
async def test_batches_with_interrupted_waits_yield_every_batch_once(
    client: Client, topic: str, rng: random.Random
) -> None:
    sent = [b"%d" % number * 100_000 for number in range(100)]
    for value in sent:
        await client.publish(topic, value)
    batches = client.batches(topic)
    found = [value for _ in sent for value in (await patiently(batches, rng)).values]
    assert found == sent
    with pytest.raises(StopAsyncIteration):
        await patiently(batches, rng)


@tailings
@in_loop
async def test_cancelled_wait_leaves_its_message_to_the_next_one(
    meddler: Meddler, client: Client, topic: str, tailing: Tailing
) -> None:
    """Also when the reply comes while no task waits."""
    tail = await tailing(client, topic)
    for number in range(3):
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        await cancelled(waiting)
        await client.publish(topic, b"%d" % number)
        await client.ping()
        assert (await anext(tail)).value == b"%d" % number


@tailings
@in_loop
async def test_cancelled_beginning_of_a_tail_begins_at_the_same_record_later(
    meddler: Meddler, client: Client, topic: str, tailing: Tailing
) -> None:
    await client.publish(topic, b"old")
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def note_reply(*_: object) -> bool:
        loop.call_soon_threadsafe(asked.set)
        return False

    meddler.on_reply = note_reply
    tail = tailing(client, topic)
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)
    await cancelled(waiting)
    await asked.wait()
    meddler.on_reply = pass_on
    await client.publish(topic, b"new")
    assert (await anext(tail)).value == b"new"


@tailings
@in_loop
async def test_two_tasks_cannot_wait_for_one_iterator(client: Client, topic: str, tailing: Tailing) -> None:
    tail = await tailing(client, topic)
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)
    with pytest.raises(RequestError) as caught:
        await anext(tail)
    assert caught.value.code == "bad_request"
    assert "of its own" in caught.value.hint
    await client.publish(topic, b"a")
    assert (await waiting).value == b"a", "the one that waited first is not disturbed"


@tailings
@in_loop
async def test_iterators_that_are_left_early_release_all_resources(
    client: Client, topic: str, tailing: Tailing
) -> None:
    await client.publish(topic, b"a")
    for _ in range(100):
        async for _message in tailing(client, topic, after=0):
            break
    await soon(lambda: _asks_nothing(client), "nothing is asked for any more")
    assert len(client._io_thread._links) <= 2


async def _asks_nothing(client: Client) -> bool:
    return not any(line.asked for line in client._io_thread._links)


# -- several topics -----------------------------------------------------------------------------------------


@in_loop
async def test_cancelled_beginning_of_a_pattern_is_completed_later(
    client: Client, topic: str, seed: int
) -> None:
    rng = random.Random(seed)
    for number in range(times(30, 500)):
        await client.publish(f"{topic}.a", b"old")
        tail = client.tail_many([f"{topic}.*", "other"], ordered=bool(number % 2))
        try:
            await asyncio.wait_for(_begun(tail), rng.choice((0, 1e-4, 1e-3, 2e-3)))
        except TimeoutError:
            await tail
        assert tail.topics == ["other", f"{topic}.a"]
        await client.publish(f"{topic}.a", b"new")
        assert (await anext(tail)).value == b"new"
        await tail.close()


async def _begun(reading: Reading) -> None:
    await reading


@in_loop
async def test_short_waits_do_not_extend_the_silence_of_a_portion(client: Client, topic: str) -> None:
    """Waits that are shorter than it do not put it off."""
    portions = client.tail_many(topic).portions(0.3)
    given_up = 0
    while not given_up:  # a stall lets a portion end in its first wait
        portion = None
        while portion is None:
            try:
                portion = await asyncio.wait_for(anext(portions), 0.05)
            except TimeoutError:
                given_up += 1
        assert portion == []


# -- publishes ----------------------------------------------------------------------------------------------


@in_loop
async def test_cancelled_publish_is_stored_once_or_not_at_all_and_disturbs_no_other(
    client: Client, topic: str, seed: int
) -> None:
    rng, stored_by = random.Random(seed), set[bytes]()

    async def publish(value: bytes, timeout: float | None) -> None:
        try:
            await asyncio.wait_for(client.publish(topic, value), timeout)
        except TimeoutError:
            return
        stored_by.add(value)

    timeouts = [None if number % 2 else rng.uniform(0, 0.01) for number in range(times(600, 1_800))]
    waiting = list(enumerate(timeouts))
    rng.shuffle(waiting)
    for begin in range(0, len(waiting), 50):
        portion = waiting[begin : begin + 50]
        await asyncio.gather(*(publish(b"%d" % number, seconds) for number, seconds in portion))
    found = [message.value for message in await client.read(topic, limit=100_000)]
    assert len(found) == len(set(found)), "nothing twice"
    assert stored_by <= set(found)
    assert {b"%d" % number for number, seconds in waiting if seconds is None} <= stored_by


async def _at_least(meddler: Meddler, number: int) -> bool:
    return sum(map(publishes, meddler.requests)) >= number


@in_loop
async def test_publish_behind_a_cancelled_one_is_another_publish(
    meddler: Meddler, client: Client, topic: str
) -> None:
    """Its outcome was never known, so the sequence of its producer may be used up."""
    await client.publish(topic, b"before")
    meddler.on_reply = lambda call, _: publishes(call)
    publishing = asyncio.ensure_future(client.publish(topic, b"a"))
    await soon(lambda: _at_least(meddler, 2), "it is on its way")
    await cancelled(publishing)
    meddler.on_reply = pass_on
    assert not (await client.publish(topic, b"a")).duplicate
    assert await values_there(client, topic) == [b"before", b"a", b"a"]


@in_loop
async def test_cancelled_publishes_leave_the_queue(meddler: Meddler, client: Client, topic: str) -> None:
    meddler.on_request = publishes
    many = [asyncio.ensure_future(client.publish(topic, b"x")) for _ in range(2 * PUBLISHES_MAX)]
    await soon(lambda: _at_least(meddler, PUBLISHES_MAX), "all turns are taken")
    for one in many:
        one.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    meddler.on_request = pass_on
    await asyncio.gather(*(client.publish(topic, b"y") for _ in range(2 * PUBLISHES_MAX)))
    assert (await client.topic(topic)).count == 2 * PUBLISHES_MAX
