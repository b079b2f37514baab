"""Load: the requests of clients, schedules, and servers that end with the benchmark."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S
from quothbench.instruments.table import Filled, Load, requests
from quothbench.load import driver, schedule
from quothbench.load.rates import Payload
from quothbench.load.servers import Target, running_broker, serving
from quothbench.load.topics import BenchTopics
from quothwire import batch
from quothwire.errors import Disconnected
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched, Operation, Ping, Pong


def fetched(socket: zmq.Socket[bytes], frames: driver.Frames) -> tuple[Fetched, Any]:
    """Send a fetch; the reply and the header of its first batch."""
    socket.send_multipart(frames)
    answer = binary_codec.decode_answer(socket.recv_multipart()[1:])
    assert isinstance(answer.reply, Fetched)
    return answer.reply, batch.check(answer.payload, answer.reply.log)


def test_ordinal_of_a_read_is_the_expected_one(broker: BrokerProcess, topic: str) -> None:
    """A wrong ordinal is reported as records that are gone, so a right one was understood."""
    with quoth.connect(broker.url) as client, driver.dealer(broker.url) as socket:
        lasts = [client.publish(topic, [b"x"] * 5).last for _ in range(3)]
        fetches = driver.fetches(topic, [0, lasts[0], lasts[1]], 5, 1, [0, 5, 7])
        assert [fetched(socket, frames)[0].gone for frames in fetches] == [0, 0, 3]


def test_reads_go_on_by_pointer_and_begin_anew_at_the_end(broker: BrokerProcess) -> None:
    payload = Payload(7, 300_000)
    with quoth.connect(broker.url) as client, BenchTopics(client, payload) as topics:
        names = topics.make(2)
        filled = list(map(Filled, names, topics.fill(names)))
        stored = sum(len(one.cursors) for one in filled)
        assert stored == 2 * 4
        with driver.dealer(broker.url) as socket:
            reads = islice(requests(Load.READ, filled, payload), 2 * stored)
            seen = [fetched(socket, frames)[1].base for frames in reads]
    assert seen[:stored] == seen[stored:], "the second round is the first one again"
    assert len(set(seen)) == stored


def test_each_write_is_stored_once(broker: BrokerProcess) -> None:
    payload, work = Payload(5, 1), Load.ALTERNATING
    with quoth.connect(broker.url) as client, BenchTopics(client, payload) as topics:
        filled = [Filled(name, [0]) for name in topics.make(3, "synced")]
        endless = requests(work, filled, payload)
        with driver.dealer(broker.url) as socket:
            first = driver.round_trips(socket, endless, 0)
            others = driver.round_trips(socket, islice(endless, 11))
        assert (len(first), len(others)) == (1, 11), "time was over, or it was not"
        assert [client.topic(one.topic).count for one in filled] == [2 * payload.records] * 3


def test_process_of_a_broker_is_known_if_it_is_here(broker: BrokerProcess) -> None:
    for url in (broker.url, broker.url.replace("127.0.0.1", "localhost")):
        with quoth.connect(url) as client:
            assert running_broker(client) == Target(url, broker.pid)
    assert Target("tcp://192.0.2.1:5555").cpu() is None


def test_server_that_does_not_start_is_an_error_with_its_last_line() -> None:
    command = [sys.executable, "-c", "print('a'); print('no room'); print()"]
    with pytest.raises(Disconnected, match="it did not start: no room"), serving("it", command, "ready"):
        pass


# -- schedules --------------------------------------------------------------------------------------------


@pytest.fixture
def answerer() -> Iterator[zmq.Socket[bytes]]:
    """A ROUTER that answers when a test says so."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.set(zmq.LINGER, 0)
        router.set(zmq.SNDHWM, 0)  # or it drops what a client does not take at once
        router.set(zmq.RCVTIMEO, int(DEADLINE_S * 1_000))
        router.bind_to_random_port("tcp://127.0.0.1")
        yield router


def answer(router: zmq.Socket[bytes], frames: list[bytes]) -> None:
    client, empty, *request = frames
    number = binary_codec.correlation_of(request)
    router.send_multipart([client, empty, *binary_codec.encode_reply(Operation.PING, number, Pong(1), None)])


def test_stall_counts_for_every_call_that_it_delays(answerer: zmq.Socket[bytes]) -> None:
    """Nothing is answered before the last call was sent, and they are sent all the same."""
    calls, rate = 20, 1_000.0
    with kept_schedule(answerer, calls, rate) as kept:
        for request in [answerer.recv_multipart() for _ in range(calls)]:
            answer(answerer, request)
    took = kept.result().took
    assert len(took) == calls
    assert all(one >= (calls - 1 - number) / rate for number, one in enumerate(took)), took
    assert kept.result().held == 0


def test_calls_beyond_the_bound_wait_and_are_counted(answerer: zmq.Socket[bytes]) -> None:
    bound = schedule.ON_THEIR_WAY_MAX
    with kept_schedule(answerer, bound + 1, 1e6) as kept:
        pings = [answerer.recv_multipart() for _ in range(bound)]
        assert not answerer.poll(50), "it sends one more"
        for request in pings:
            answer(answerer, request)
        answer(answerer, answerer.recv_multipart())
    assert kept.result().held == 1
    assert kept.result().late >= 1
    assert len(kept.result().took) == bound + 1


def test_calls_are_not_sent_before_they_are_due(broker: BrokerProcess) -> None:
    calls, rate = 25, 500.0
    with driver.dealer(broker.url) as socket:
        began = time.perf_counter()
        kept = schedule.keep(socket, driver.numbered(Ping(), "", calls), rate)
    assert time.perf_counter() - began >= (calls - 1) / rate
    assert len(kept.took) == calls
    assert min(kept.took) > 0


@contextmanager
def kept_schedule(
    answerer: zmq.Socket[bytes], calls: int, rate: float
) -> Iterator[Future[schedule.ScheduleResult]]:
    """Keep a schedule of pings in another thread."""
    url = answerer.get_string(zmq.LAST_ENDPOINT)

    def keep() -> schedule.ScheduleResult:
        with driver.dealer(url) as socket:
            return schedule.keep(socket, driver.numbered(Ping(), "", calls), rate)

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(keep)
