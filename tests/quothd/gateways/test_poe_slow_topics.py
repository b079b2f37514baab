"""Requests that wait for a topic of the broker: they keep no request for another topic from being served."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.deadlines import DEADLINE_S
from kit.gateways.poe import ANY_PORT, PoePeer, read_frame
from quothd import Broker
from quothd.gateways.poe.budget import ByteBudget, HeldBytes
from quothlog.recovery.recovery import open_directory
from quothwire.batch import BATCH_BYTES_MAX

LARGE = bytes(BATCH_BYTES_MAX - 1_000)
SLOW = [f"slow{number}" for number in range(6)]


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Broker, threading.Event]]:
    """Start a broker that opens the slow topics once the event is set; `quick` has a record, too."""
    settings: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "poe_listen": ANY_PORT}
    with Broker(tmp_path, **settings) as broker, quoth.connect(broker) as client:
        for topic in (*SLOW, "quick"):
            client.publish(topic, b"1")
    released = threading.Event()

    def open_slowly(filesystem: Any, directory: Path, *others: Any) -> Any:
        if "slow" in str(directory):
            released.wait(3 * DEADLINE_S)  # longer than a client of Poe waits for an answer
        return open_directory(filesystem, directory, *others)

    monkeypatch.setattr("quothlog.log.open_directory", open_slowly)
    with Broker(tmp_path, **settings) as broker:
        try:
            yield broker, released
        finally:
            released.set()


def test_requests_for_topics_that_open_slowly_delay_no_other_topic(
    opening: tuple[Broker, threading.Event],
) -> None:
    """Many reads and large puts. All of them are answered once they are open."""
    broker, released = opening
    with ExitStack() as stack:
        good, *readers = [stack.enter_context(PoePeer(broker.poe_url)) for _ in range(1 + 2 * len(SLOW))]
        putters = [stack.enter_context(PoePeer(broker.poe_url)) for _ in SLOW]
        threads = stack.enter_context(ThreadPoolExecutor(len(SLOW)))
        stack.callback(released.set)
        for reader, topic in zip(readers, 2 * SLOW, strict=True):
            reader.send(read_frame(topic.encode(), 0, 2))
        puts = [threads.submit(putter.put, topic, LARGE) for putter, topic in zip(putters, SLOW, strict=True)]
        assert all(reader.is_quiet() for reader in readers)
        assert [value for _, value in good.read("quick")] == [b"1"]
        last = good.put("quick", LARGE)
        good.put("quick", b"2")
        assert [value for _, value in good.read("quick", last)] == [b"2"]
        assert all(reader.is_quiet(0) for reader in readers)
        assert not any(put.done() for put in puts)
        released.set()
        for reader in readers:
            assert reader.records()[0][1] == b"1"
        assert all(put.result() for put in puts)


def test_one_topic_gets_half_of_the_room() -> None:
    """A frame of another topic passes those that wait for more; a frame above the half passes alone."""

    async def act() -> None:
        budget, order = ByteBudget(10), list[str]()
        rest = asyncio.Event()

        async def hold(topic: str, size: int) -> None:
            with budget.holder(lambda: None) as held:
                await budget.take(held, size, topic)
                order.append(f"{topic} {size}")
                await rest.wait()

        sizes = ("a", 4), ("a", 2), ("b", 5), ("c", 10), ("a", 1)
        tasks = [asyncio.create_task(hold(topic, size)) for topic, size in sizes]
        while len(order) < 2:
            await asyncio.sleep(0)
        assert order == ["a 4", "b 5"]
        rest.set()
        await asyncio.gather(*tasks)
        assert order[2:] == ["a 2", "c 10", "a 1"]

    asyncio.run(act())


@pytest.mark.parametrize(("topic", "is_ended"), [("other", True), ("slow", False)])
def test_a_connection_that_waits_for_the_broker_is_ended_for_another_topic_alone(
    topic: str, is_ended: bool
) -> None:
    async def act() -> None:
        budget = ByteBudget(10, pressed=0.01)
        ended = asyncio.Event()

        with budget.holder(ended.set) as slow, budget.holder(lambda: None) as other:
            await budget.take(slow, 8, "slow")
            slow.begin_wait(at_broker=True)
            task = asyncio.create_task(budget.take(other, 5, topic))
            if is_ended:
                await ended.wait()
            else:
                await asyncio.wait((task,), timeout=0.05)
            assert ended.is_set() == is_ended
            budget.keep(slow, 0)
            await task
            assert other.size == 5

    asyncio.run(act())


def test_a_wait_for_room_that_is_cancelled_leaves_it_to_the_others() -> None:
    async def act() -> None:
        budget = ByteBudget(10)
        with budget.holder(lambda: None) as first, budget.holder(lambda: None) as last:
            await budget.take(first, 5, "a")

            async def wait(held: HeldBytes) -> None:
                await budget.take(held, 10, "b")

            with budget.holder(lambda: None) as cancelled:
                task = asyncio.create_task(wait(cancelled))
                await asyncio.sleep(0)
                behind = asyncio.create_task(budget.take(last, 5, "c"))
                await asyncio.sleep(0)
                sizes = [last.size]
                task.cancel()
                await behind
            assert [*sizes, last.size] == [0, 5]

    asyncio.run(act())
