"""The end of an asyncio client, of its loop and of its process."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.client.loops import in_loop, no_carriers
from kit.client.records import take
from kit.deadlines import soon
from kit.machine.commands import run_script
from quoth import BrokerFailure, Gap, RequestError
from quoth.aio import Client, Reading, Tail
from quoth.aio.io_thread import Ticket
from quoth.core.request_state import RequestState
from quothwire.protocol.messages import Ping

Tailing = Callable[..., Tail | Reading]

# -- ending -------------------------------------------------------------------------------------------------


@in_loop
async def test_defect_in_the_thread_ends_all_calls_with_its_error(client: Client, topic: str) -> None:
    waiting = asyncio.ensure_future(client.read(topic, timeout=60.0))
    await asyncio.sleep(0)
    ticket = Ticket(RequestState(Ping()), None)
    client._io_thread._put(lambda _: print(1 // 0), ticket)
    for call in (client.ping(), waiting, client.ping()):
        with pytest.raises(BrokerFailure) as caught:
            await call
        assert "ZeroDivisionError" in caught.value.text
        assert "report" in caught.value.hint


ABANDONING = """
import asyncio, gc, sys, threading, time
import quoth.aio

async def main():
    client = await quoth.aio.connect(sys.argv[1])
    await client.publish("abandoned", b"x")
    tail = client.tail("abandoned", after=0)
    await anext(tail)
    waiting = client.tail("abandoned that is not there")
    try:
        await asyncio.wait_for(anext(waiting), 0.01)
    except TimeoutError:
        pass
    many = client.tail_many("abandoned*", after=0, ordered=True)
    await anext(many)
    producer = client.producer("abandoned", linger=60)
    await producer.send(b"y")
    producer.future()
    return client, tail, waiting, many, producer

loop = asyncio.new_event_loop()
loop.slow_callback_duration = 60  # a busy machine is nothing to warn of
kept = loop.run_until_complete(main())
loop.close()
if sys.argv[2] == "dropped":
    del kept
    gc.collect()
if sys.argv[2] != "at once":
    deadline = time.monotonic() + 20
    while any(thread.name.startswith("quoth") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
"""


@pytest.mark.parametrize("left", ["kept", "dropped", "at once"])
def test_loop_that_ends_before_its_client_leaves_no_thread_and_no_warning(
    broker: BrokerProcess, left: str
) -> None:
    ended = run_script(ABANDONING, broker.url, left, options=("-X", "dev", "-W", "error"))
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("tailing", [Client.tail, Client.tail_many])
@in_loop
async def test_client_without_references_ends_its_thread(
    broker: BrokerProcess, topic: str, tailing: Tailing
) -> None:
    client = await quoth.aio.connect(broker.url)
    tail = tailing(client, topic, after=0)
    await client.publish(topic, b"x")
    del client
    assert await take(tail, 1) == [b"x"], "an iterator keeps its client"
    del tail
    gc.collect()
    await soon(no_carriers, "the thread ends")


# -- at home ------------------------------------------------------------------------------------------------


@in_loop
async def test_another_event_loop_is_refused_with_the_remedy(client: Client) -> None:
    with pytest.raises(RequestError) as caught:
        await asyncio.to_thread(asyncio.run, client.ping())
    assert caught.value.code == "bad_request"
    assert "another event loop" in caught.value.text
    assert await client.ping() > 0


FORKING = """
import asyncio, os, sys
import quoth.aio

async def main():
    async with quoth.aio.connect(sys.argv[1]) as client:
        await client.publish("forked", b"parent 0")
        pid = os.fork()
        if not pid:
            try:
                client._io_thread.check()
            except quoth.Disconnected as problem:
                os._exit(0 if problem.code == "closed" else 1)
            os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        await client.publish("forked", b"parent 1")

asyncio.run(main())
"""


def test_forked_child_is_refused_and_leaves_the_parent_unharmed(start_broker: StartBroker) -> None:
    ended = run_script(FORKING, start_broker().url)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("tailing", [Client.tail, Client.tail_many])
@in_loop
async def test_gap_is_reported_in_the_loop_and_an_error_there_ends_the_reading(
    client: Client, topic: str, tailing: Tailing
) -> None:
    def stop(gap: Gap) -> None:
        assert asyncio.get_running_loop()
        raise ValueError(gap.reason)

    await client.create_topic(topic, count_limit=1)
    acks = [await client.publish(topic, b"%d" % number) for number in range(3)]
    await client.trim(topic, acks[2].first)
    tail = tailing(client, topic, after=acks[0].last, on_gap=stop)
    with pytest.raises(ValueError, match="trimmed"):
        await anext(tail)
    with pytest.raises(StopAsyncIteration):
        await anext(tail)
