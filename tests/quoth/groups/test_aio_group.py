"""Groups in an event loop: cancelled waits, tasks, handlers that are coroutines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import pytest

import quoth.aio
from kit.broker.peers import refused
from kit.client.loops import in_loop, run
from kit.client.records import numbered
from kit.deadlines import DEADLINE_S, soon
from quoth.aio import Client, GroupMessage


def brief(client: Client) -> Client:
    """Let members end soon."""
    client._timing.group_wait = 0.1
    return client


async def values_of(group: quoth.aio.ConsumerGroup, number: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < number:
        found += [message.value for message in await group.fetch(number - len(found), DEADLINE_S)]
    return found


async def when(check: Callable[[], bool], what: str) -> None:
    async def checked() -> bool:
        return check()

    await soon(checked, what)


@in_loop
async def test_a_cancelled_wait_loses_no_record(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    async with client.group(topic, "g") as group:
        iteration = aiter(group)
        for wait in (group.fetch(1), anext(iteration), group.fetch(10)):
            waiting = asyncio.ensure_future(wait)
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await client.publish(topic, numbered(3))
        assert (await anext(iteration)).value == b"0"
        assert await values_of(group, 2) == numbered(2, 1)
    async with client.group(topic, "g") as group:
        assert await values_of(group, 2) == numbered(2, 1)


@in_loop
async def test_tasks_that_fetch_at_once_wait_for_each_other(client: Client, topic: str) -> None:
    await client.publish(topic, numbered(30))
    async with client.group(topic, "g") as group:
        found = await asyncio.gather(*(group.fetch(5) for _ in range(6)))
        assert sorted((one.value for part in found for one in part), key=int) == numbered(30)
        await asyncio.gather(*(message.ack() for part in found for message in part))
        assert (await group.lag()).records == 0


@in_loop
async def test_a_cancelled_body_gives_its_record_back_at_once(client: Client, topic: str) -> None:
    await client.publish(topic, numbered(3))
    inside = asyncio.Event()

    async def consume() -> None:
        async with client.group(topic, "g", backoff=["1h"]) as group:
            async for _ in group:
                inside.set()
                await asyncio.sleep(DEADLINE_S)

    task = asyncio.create_task(consume())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with client.group(topic, "g") as group:
        assert await values_of(group, 3) == numbered(3)


@in_loop
async def test_a_member_of_a_closed_client_is_closed(client: Client, topic: str) -> None:
    await client.publish(topic, numbered(3))
    group = client.group(topic, "g")
    (message,) = await group.fetch(1)
    await client.close()
    calls: list[Callable[[], Awaitable[object]]] = [message.ack, group.fetch, group.lag]
    for call in calls:
        with refused("closed"):
            await call()
    with refused("closed"):
        client.group(topic, "g")


# -- handlers -----------------------------------------------------------------------------------------------


@in_loop
async def test_handlers_are_tasks(client: Client, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    await brief(client).publish(topic, numbered(20))
    done, meeting = set(), asyncio.Barrier(3)

    @client.subscribe(topic, group="g", concurrency=3, backoff=[0.0])
    async def handle(message: GroupMessage) -> None:
        if message.value in numbered(3):
            await meeting.wait()
        if message.value == b"7" and message.attempts == 1:
            raise ZeroDivisionError
        done.add(message.value)

    @client.subscribe(topic, group="other")
    def plain(_: GroupMessage) -> None:
        """A function that is no coroutine function."""

    running = asyncio.create_task(client.run())
    await when(lambda: len(done) == 20, "all are handled")
    client.stop()
    first, second = await running
    assert first == (topic, "g", 20, 1, 0)
    assert (second.group, second.failed) == ("other", 0)
    assert "a handler has failed" in caplog.text
    assert (await client.group(topic, "g").lag()).records == 0


@in_loop
async def test_a_cancelled_run_gives_the_records_of_its_handlers_back(client: Client, topic: str) -> None:
    await brief(client).publish(topic, numbered(8))
    inside: list[bytes] = []

    @client.subscribe(topic, group="g", backoff=["1h"])
    async def handle(message: GroupMessage) -> None:
        inside.append(message.value)
        await asyncio.sleep(DEADLINE_S)

    running = asyncio.create_task(client.run())
    await when(lambda: len(inside) == 4, "handlers are at work")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with client.group(topic, "g") as group:
        assert sorted(await values_of(group, 8)) == numbered(8)


@in_loop
async def test_a_second_run_beside_the_first_is_refused(client: Client, topic: str) -> None:
    await brief(client).publish(topic, numbered(8))
    done: list[GroupMessage] = []
    client.subscribe(topic, group="g")(done.append)
    running = asyncio.create_task(client.run())
    await when(lambda: len(done) == 8, "it is at work")
    with refused("bad_request"):
        await asyncio.wait_for(client.run(), 1.0)
    client.stop()
    assert await running == [(topic, "g", 8, 0, 0)]


@in_loop
async def test_an_error_of_a_group_ends_a_run(client: Client, topic: str) -> None:
    await brief(client).publish(topic, numbered(8))
    done: list[GroupMessage] = []
    client.subscribe(topic, group="g")(done.append)
    running = asyncio.create_task(client.run())
    await when(lambda: len(done) == 8, "it is at work")
    await client.group(topic, "g").delete()
    with refused("unknown_group"):
        await running


def test_a_signal_ends_a_run_of_the_main_thread(broker: quoth.client.BrokerLike, topic: str) -> None:
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]

    async def main() -> None:
        async with quoth.aio.connect(broker.url) as client:
            await brief(client).publish(topic, numbered(8))

            @client.subscribe(topic, group="g")
            async def handle(message: GroupMessage) -> None:
                if message.value == b"7":
                    os.kill(os.getpid(), signal.SIGTERM)

            assert await client.run() == [(topic, "g", 8, 0, 0)]

    run(main())
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers


@in_loop
async def test_a_run_leaves_the_signal_handlers_of_the_loop(client: Client, topic: str) -> None:
    await brief(client).publish(topic, numbered(1))
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, called.set)

    @client.subscribe(topic, group="g")
    def handle(_: GroupMessage) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    await client.run()
    called.clear()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(called.wait(), DEADLINE_S)
    assert loop.remove_signal_handler(signal.SIGTERM)
