"""Bounds of Poe's port: connections, memory, idle time. No client delays another one."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from operator import methodcaller
from typing import TypeVar

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import flip, stored_batches
from kit.gateways.poe import ANY_PORT, PoePeer, poe_url, put_frame, read_frame
from kit.machine.processes import children, resident_bytes
from quothd.gateways.poe.budget import ByteBudget, HeldBytes
from quothd.gateways.poe.protocol import FRAME_BYTES_MAX
from quothd.gateways.poe.server import REQUEST_BYTES
from quothwire.batch import HEADER_BYTES

T = TypeVar("T")
IDLE_S = 2.5
MIB = 2**20


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Start a broker that closes idle connections soon."""
    directory = tmp_path_factory.mktemp("poe") / "data"
    with BrokerProcess(directory, poe_listen=ANY_PORT, poe_idle=IDLE_S).running() as broker:
        yield broker


def test_connections_above_the_limit_are_closed_and_those_below_go_on(start_broker: StartBroker) -> None:
    broker = start_broker(poe_listen=ANY_PORT, poe_connections_max=2)
    url = poe_url(broker)
    with PoePeer(url) as one:
        with PoePeer(url) as two:
            one.put("t", b"1")
            two.put("t", b"2")
            with PoePeer(url) as three:
                assert three.is_closed()
            assert len(one.read("t")) == 2
        broker.wait_for('event=poe_closed count=1 problem="there are 2 connections already"')

        def is_served() -> bool:
            with PoePeer(url) as other:
                other.send(read_frame(b"t", 0, 10))
                return len(other.receive(6)) == 6

        eventually(is_served, "there is room again")


def served(url: str, ask: Callable[[PoePeer], T]) -> T:
    """Ask on new connections until one is answered: a stall lets the server close one as idle."""

    def answer() -> list[T]:
        with suppress(OSError, struct.error), PoePeer(url) as peer:
            return [ask(peer)]
        return []

    return eventually(answer, "it is answered")[0]


def read_slowly(busy: PoePeer) -> list[tuple[int, bytes]]:
    """Send a byte now and then, for longer than the idle time, and return the answer."""
    request = read_frame(b"none", 0, 10)
    assert busy.read("none") == []  # the process has started, and accepted it
    began = time.monotonic()
    at = 0
    while time.monotonic() < began + 1.2 * IDLE_S and at < len(request) - 1:
        busy.send(request[at : at + 1])
        at += 1
        busy.is_quiet(IDLE_S / 10)
    busy.send(request[at:])
    return busy.records()


def test_a_connection_without_a_byte_is_closed_after_the_idle_time(impatient: BrokerProcess) -> None:
    """In the middle of a frame, too. One that sends a byte now and then is not."""
    url = poe_url(impatient)
    with PoePeer(url) as silent, PoePeer(url) as half:
        half.send(bytes.fromhex("00000012 0000 0000"))
        assert served(url, read_slowly) == []
        for idle in (silent, half):
            assert idle.is_closed()


def test_a_client_that_reads_no_answer_delays_no_other_and_is_closed(
    impatient: BrokerProcess,
) -> None:
    """One asks for 32 MiB and reads nothing, another one sends half a frame of 16 MiB."""
    url = poe_url(impatient)
    expected = [b"%d" % number for number in range(100)]
    with ExitStack() as stack:
        served(url, lambda good: good.put("large", *[bytes(MIB // 2)] * 4))
        deaf = stack.enter_context(PoePeer(url, buffer=4_096))
        deaf.send(read_frame(b"large", 0, 10) * 64)
        half = stack.enter_context(PoePeer(url))
        began = time.monotonic()
        half.send(put_frame(b"never", [bytes(16 * MIB - 1_000)])[: 8 * MIB])
        for value in expected:
            served(url, methodcaller("put", "t", value))
            assert time.monotonic() < began + DEADLINE_S
        assert {value for _, value in served(url, lambda good: good.read("t"))} == {*expected}
        large = served(url, lambda good: good.read("large"))
        assert sum(len(value) for _, value in large) == MIB // 2
        assert half.is_closed()
        client = stack.enter_context(quoth.connect(impatient.url))
        eventually(lambda: client.status().counters["poe_connections"] <= 1, "it is closed")
        assert deaf.drain() < 32 * MIB
        assert "never" not in client.topics()


def test_large_frames_of_many_clients_share_a_bounded_memory(start_broker: StartBroker) -> None:
    """Clients that stop in the middle give way to one that goes on, long before they are idle."""
    broker = start_broker(poe_listen=ANY_PORT, scrub_interval=0)
    url = poe_url(broker)
    frame = put_frame(b"sum", [bytes(16 * MIB - 1_000)])
    with ExitStack() as stack:
        good = stack.enter_context(PoePeer(url))
        first = good.put("sum", b"1")
        (process,) = children(broker.pid)
        before = resident_bytes(process)
        halves = [stack.enter_context(PoePeer(url)) for _ in range(6)]
        for half in halves:
            half.socket.setblocking(False)
            half.send_some(frame[:-1])
        good.put("sum", bytes(16 * MIB - 1_000))
        assert resident_bytes(process) - before < 4 * REQUEST_BYTES
        assert len(good.read("sum", first, 2)) == 1
        broker.wait_for("another client")


def test_a_put_of_more_than_a_batch_is_closed_and_nothing_of_it_stored(
    impatient: BrokerProcess,
) -> None:
    url = poe_url(impatient)
    with PoePeer(url) as poe:
        poe.send_pieces([put_frame(b"over", [bytes(MIB)] * 17)])
        assert poe.is_closed()
    with PoePeer(url) as poe:
        poe.send_pieces([(FRAME_BYTES_MAX + 1).to_bytes(4, "big")])
        assert poe.is_closed()
    assert served(url, lambda poe: poe.read("over")) == []


def test_a_read_passes_over_damage_and_what_is_removed(start_broker: StartBroker) -> None:
    """Damage is logged. What retention or a deletion has taken is not missed."""
    broker = start_broker(poe_listen=ANY_PORT, scrub_interval=0)
    with quoth.connect(broker.url) as client:
        pointers = [client.publish("t", b"value %d" % number).last for number in range(3)]
        client.roll("t")
        pointers.append(client.publish("t", b"value 3").last)
        log = client.topic("t").log
    broker.terminate()
    one = stored_batches(broker.topics_directory, log)[1]
    flip(one.path, one.start + HEADER_BYTES + 9)
    broker.restart()
    with PoePeer(poe_url(broker)) as poe, quoth.connect(broker.url) as client:
        assert [pointer for pointer, _ in poe.read("t")] == [pointers[0], *pointers[2:]]
        assert [pointer for pointer, _ in poe.read("t", pointers[0])] == pointers[2:]
        broker.wait_for("event=poe_damaged")
        client.trim("t", pointers[3])
        assert [pointer for pointer, _ in poe.read("t", pointers[0])] == pointers[3:]
        client.delete_topic("t")
        assert poe.read("t", pointers[0]) == []
        new = poe.put("t", b"new")
        assert poe.read("t", pointers[0]) == [(new, b"new")]


# -- the budget -------------------------------------------------------------------------------------------


def test_the_longest_wait_for_room_ends_first() -> None:
    async def act() -> None:
        budget, order = ByteBudget(10), list[str]()

        async def hold(name: str, size: int, done: asyncio.Event) -> None:
            with budget.holder(lambda: None) as held:
                await budget.take(held, size, name)
                order.append(name)
                await done.wait()

        first, rest = asyncio.Event(), asyncio.Event()
        rest.set()
        tasks = [asyncio.create_task(hold("first", 8, first))]
        tasks += [asyncio.create_task(hold(name, size, rest)) for name, size in (("large", 10), ("small", 1))]
        while not order:
            await asyncio.sleep(0)
        first.set()
        await asyncio.gather(*tasks)
        assert order == ["first", "large", "small"]

    asyncio.run(act())


def test_who_keeps_others_from_room_is_ended_unless_the_broker_is_at_work() -> None:
    async def act() -> None:
        budget = ByteBudget(10, pressed=0.01)
        ended = asyncio.Event()

        async def hold(held: HeldBytes) -> None:
            await ended.wait()
            budget.keep(held, 0)

        with budget.holder(ended.set) as waits, budget.holder(lambda: None) as works:
            await budget.take(waits, 5, "half sent")
            await budget.take(works, 5, "in work")
            waits.begin_wait()
            task = asyncio.create_task(hold(waits))
            with budget.holder(lambda: None) as other:
                await budget.take(other, 5, "other")
            assert ended.is_set()
            await task

    asyncio.run(act())
