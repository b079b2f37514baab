"""The calls of Poe's benchmark: where reads go on, where they end or begin anew, and what is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess
from quothbench.instruments.poe_calls import ClientCalls, Load
from quothbench.load import driver
from quothbench.load.topics import BenchTopics, Payload
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched

PAYLOAD = Payload(7, 300_000)
BATCHES = 20_000_000 // (7 * 300_000) // 2
"""Batches that `BenchTopics.fill` stores in each of two topics."""


@pytest.fixture
def topics(broker: BrokerProcess) -> Iterator[BenchTopics]:
    with quoth.connect(broker.url) as client, BenchTopics(client) as made:
        yield made


@pytest.fixture
def socket(broker: BrokerProcess) -> Iterator[zmq.Socket[bytes]]:
    with driver.dealer(broker.url) as opened:
        yield opened


def stored(broker: BrokerProcess, names: Sequence[str]) -> dict[str, list[int]]:
    """The last pointer of each batch of each topic."""
    with quoth.connect(broker.url) as client:
        return {name: [batch.last for batch in client.batches(name)] for name in names}


def reads(socket: zmq.Socket[bytes], calls: ClientCalls, most: int) -> Iterator[tuple[str, int]]:
    """Make calls; yield the topic of each and the pointer it read up to, 0 for one that found nothing."""
    for frames in islice(calls.requests(), most):
        socket.send_multipart(frames)
        reply = socket.recv_multipart()
        answer = binary_codec.decode_answer(reply[1:])
        assert isinstance(answer.reply, Fetched)
        calls.answered(reply)
        yield frames[2].decode(), answer.reply.next if answer.payload else 0


def test_read_goes_on_by_pointer_and_ends_where_it_is_caught_up(
    broker: BrokerProcess, topics: BenchTopics, socket: zmq.Socket[bytes]
) -> None:
    names = topics.make(2)
    topics.fill(names, PAYLOAD)
    expected = {name: [*lasts, 0] for name, lasts in stored(broker, names).items()}
    assert [len(lasts) for lasts in expected.values()] == [BATCHES + 1] * 2
    calls = ClientCalls(Load.READ, names, PAYLOAD)
    found = list(reads(socket, calls, 100))
    assert [name for name, _ in found[:4]] == [*names, *names], "one topic after the other"
    assert {name: [to for of, to in found if of == name] for name in names} == expected
    assert (calls.messages, calls.caught_up) == (2 * BATCHES * 7, 2)


def test_read_wrap_goes_back_to_the_first_record_at_the_end(
    broker: BrokerProcess, topics: BenchTopics, socket: zmq.Socket[bytes]
) -> None:
    names = topics.make(2)
    topics.fill(names, PAYLOAD)
    expected = stored(broker, names)
    calls = ClientCalls(Load.READ_WRAP, names, PAYLOAD)
    found = list(reads(socket, calls, 2 * (2 * (BATCHES + 1) + 1)))
    for name in names:
        lasts = expected[name]
        assert [to for of, to in found if of == name] == [*lasts, 0, *lasts, 0, lasts[0]]
    assert (calls.messages, calls.caught_up) == (2 * (2 * BATCHES + 1) * 7, 4)


def test_alternating_reads_what_was_written_last_and_stays_where_it_is_caught_up(
    broker: BrokerProcess, topics: BenchTopics, socket: zmq.Socket[bytes]
) -> None:
    """Another program removes what was written, so that the second read finds nothing."""
    (name,) = topics.make(1)
    calls = ClientCalls(Load.ALTERNATING, [name], PAYLOAD)
    with quoth.connect(broker.url) as client:
        for number, frames in enumerate(islice(calls.requests(), 6)):
            if number == 3:
                client.trim(name, client.topic(name).last + 1)
            socket.send_multipart(frames)
            calls.answered(socket.recv_multipart())
        assert client.topic(name).count == 7, "the third write"
    assert (calls.messages, calls.caught_up) == (3 * 7 + 2 * 7, 1)


def test_each_write_is_stored_once(
    broker: BrokerProcess, topics: BenchTopics, socket: zmq.Socket[bytes]
) -> None:
    payload = Payload(5, 1)
    names = topics.make(3, "synced")
    first = ClientCalls(Load.ALTERNATING, names, payload).measure(socket, 0)
    assert (len(first.took), first.messages) == (1, 5), "time was over"
    calls = ClientCalls(Load.ALTERNATING, names, payload)
    assert len(driver.round_trips(socket, islice(calls.requests(), 12), answered=calls.answered)) == 12
    assert (calls.messages, calls.caught_up) == (12 * 5, 0)
    with quoth.connect(broker.url) as client:
        assert [client.topic(name).count for name in names] == [15, 10, 10]


def test_write_mini_stores_values_of_one_byte(
    broker: BrokerProcess, topics: BenchTopics, socket: zmq.Socket[bytes]
) -> None:
    (name,) = topics.make(1)
    payload = Load.WRITE_MINI.payload(Payload(3, 100))
    calls = ClientCalls(Load.WRITE_MINI, [name], payload)
    driver.round_trips(socket, islice(calls.requests(), 2), answered=calls.answered)
    with quoth.connect(broker.url) as client:
        assert [len(message.value) for message in client.read(name)] == [1] * 6
    assert Load.WRITE.payload(Payload(3, 100)) == Payload(3, 100)
