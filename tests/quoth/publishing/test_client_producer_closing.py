"""A producer whose buffer is full, and one that is closed in any state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import pytest

from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.deadlines import DEADLINE_S, eventually
from quoth import Ack, Client, Failure, Messages, Producer, ProducerError, Unavailable
from quoth import producer as producer_module
from quoth.connection.send_loop import SendLoop
from quothwire.errors import error
from quothwire.protocol.binary_codec import Call
from quothwire.protocol.messages import Operation

Connect = Callable[..., Client]


def messages(client: Client, topic: str) -> Messages:
    """All records of a topic."""
    return client.read(topic, limit=1_000_000)


def values(client: Client, topic: str) -> list[bytes]:
    """All values of a topic."""
    return [message.value for message in messages(client, topic)]


def publishes(call: Call) -> bool:
    """The rule that loses every publish."""
    return call.operation is Operation.PUBLISH


def failures_of(ending: Callable[[], object]) -> list[Failure]:
    """Return the failures that a flush or a closing raises."""
    with pytest.raises(ProducerError) as caught:
        ending()
    return caught.value.failures


# -- a full buffer ------------------------------------------------------------------------------------------


def test_full_buffer_raises_where_that_is_asked_for(meddler: Meddler, connect: Connect, topic: str) -> None:
    with connect(meddler).producer(topic, batch=5, max_buffer=10, on_full="raise") as producer:
        meddler.on_request = lambda call: error("busy", "of the test")
        for number in range(10):
            producer.send(b"%d" % number)
        with pytest.raises(Unavailable) as caught:
            producer.send(b"one too many")
        assert caught.value.code == "busy"
        assert "not taken" in caught.value.text
        meddler.on_request = pass_on
        producer.flush(DEADLINE_S)
        producer.send(b"10")
        producer.flush(DEADLINE_S)
        assert producer.acknowledged == 11


def test_full_buffer_lets_the_sender_wait(
    meddler: Meddler, connect: Connect, client: Client, pool: ThreadPoolExecutor, topic: str
) -> None:
    with connect(meddler).producer(topic, batch=5, max_buffer=10) as producer:
        meddler.on_request = lambda call: error("busy", "of the test")
        sent: list[int] = []

        def work() -> None:
            for number in range(30):
                producer.send(b"%d" % number)
                sent.append(number)

        sending = pool.submit(work)
        eventually(lambda: len(sent) == 10, "it is full")
        assert not sending.done()
        meddler.on_request = pass_on
        sending.result(DEADLINE_S)
    assert values(client, topic) == [b"%d" % number for number in range(30)]


def test_sender_does_not_wait_for_ever(
    meddler: Meddler, connect: Connect, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it could not send is certain not to be stored, while what holds it up may well be."""
    monkeypatch.setattr(SendLoop, "_is_expired", lambda *_: False)
    with connect(meddler).producer(topic, batch=5, max_buffer=5, timeout=0.1) as producer:
        meddler.on_request = lambda call: error("busy", "of the test")
        for number in range(5):
            producer.send(b"%d" % number)
        with pytest.raises(Unavailable) as caught:
            producer.send(b"more")
        assert caught.value.code == "busy"
        meddler.on_request = pass_on
    assert values(client, topic) == [b"%d" % number for number in range(5)]


def test_buffer_is_full_when_it_has_enough_bytes_and_a_large_record_always_fits(
    meddler: Meddler, connect: Connect, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert producer_module.BUFFER_BYTES_MAX == 64 * 2**20
    monkeypatch.setattr(producer_module, "BUFFER_BYTES_MAX", 1_000)
    sent = [bytes(5_000), b"a" * 900, b"b" * 900]
    with connect(meddler).producer(topic, on_full="raise") as producer:
        meddler.on_request = lambda call: error("busy", "of the test")
        for values_taken in (sent[:1], sent[1:]):
            for value in values_taken:
                producer.send(value)
            with refused("busy"):
                producer.send(b"one too many")
            meddler.on_request = pass_on
            producer.flush(DEADLINE_S)
            meddler.on_request = lambda call: error("busy", "of the test")
        meddler.on_request = pass_on
    assert values(client, topic) == sent


# -- closing ------------------------------------------------------------------------------------------------


def test_closing_delivers_everything_and_ends_the_thread(client: Client, topic: str) -> None:
    before = set(threading.enumerate())
    producer = client.producer(topic, linger=60)
    for number in range(2_500):
        producer.send(b"%d" % number)
    producer.close()
    assert len(values(client, topic)) == 2_500
    assert set(threading.enumerate()) <= before
    producer.close()


def test_closed_producer_refuses_everything(client: Client, topic: str) -> None:
    producer = client.producer(topic)
    producer.close()
    for call in (lambda: producer.send(b"a"), producer.flush, producer.future):
        with refused("closed"):
            call()
    with refused("unknown_topic"):
        client.topic(topic)


def test_closing_with_a_timeout_tells_what_was_left_and_how_certain_that_is(
    meddler: Meddler, connect: Connect, topic: str
) -> None:
    producer = connect(meddler).producer(topic, batch=1, linger=60)
    meddler.on_request = publishes
    futures: list[Future[Ack]] = []
    for number in range(40):
        futures.append(producer.future())
        producer.send(b"%d" % number)
    eventually(lambda: sum(map(publishes, meddler.requests)) >= 32, "the window is full")
    failures = failures_of(lambda: producer.close(0.1))
    assert [failure.values for failure in failures] == [[b"%d" % number] for number in range(40)]
    assert [failure.outcome for failure in failures] == ["unknown"] * 32 + ["refused"] * 8
    assert {failure.error.code for failure in failures} == {"closed"}
    assert all(future.exception(DEADLINE_S) for future in futures)
    producer.close()


def test_two_threads_may_close_at_once(pooled: Client, topic: str) -> None:
    for turn in range(20):
        producer = pooled.producer(topic, linger=60)
        producer.send(b"%d" % turn)
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(producer.close) for _ in range(2)]:
                done.result(DEADLINE_S)
    assert len(values(pooled, topic)) == 20


def test_closing_wakes_a_sender_that_waits(
    meddler: Meddler, connect: Connect, pool: ThreadPoolExecutor, topic: str
) -> None:
    producer = connect(meddler).producer(topic, batch=5, max_buffer=5)
    meddler.on_request = publishes
    for number in range(5):
        producer.send(b"%d" % number)
    waiting = pool.submit(producer.send, b"more")
    eventually(lambda: any(map(publishes, meddler.requests)), "the first is on its way")
    failures_of(lambda: producer.close(0.1))
    with refused("closed"):
        waiting.result(DEADLINE_S)


def send_and_fail(client: Client, topic: str) -> None:
    """An application that breaks down while its producer is open."""
    with client.producer(topic, linger=60) as producer:
        producer.send(b"a")
        raise ZeroDivisionError


def test_exception_in_the_block_comes_out_and_what_was_sent_is_delivered(client: Client, topic: str) -> None:
    with pytest.raises(ZeroDivisionError):
        send_and_fail(client, topic)
    assert values(client, topic) == [b"a"]


def test_failed_delivery_is_told_even_behind_an_exception_in_the_block(
    meddler: Meddler, connect: Connect, topic: str
) -> None:
    client = connect(meddler)
    meddler.on_request = lambda call: error("bad_batch", "of the test")
    with pytest.raises(ProducerError) as caught:
        send_and_fail(client, topic)
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_many_producers_come_and_go(client: Client, stack: ExitStack, topic: str) -> None:
    producers: list[Producer] = [stack.enter_context(client.producer(topic)) for _ in range(30)]
    for number, producer in enumerate(producers):
        producer.send(b"%d" % number)
    for producer in producers:
        producer.close()
    assert sorted(values(client, topic)) == sorted(b"%d" % number for number in range(30))


def test_producer_names_are_of_no_meaning_to_the_count(client: Client, topic: str) -> None:
    """Producers of one client do not disturb each other, nor the client's own publishes."""
    number = count()
    with client.producer(topic, linger=0) as one, client.producer(topic, linger=0) as other:
        for _ in range(20):
            one.send(b"%d" % next(number))
            one.flush()
            other.send(b"%d" % next(number))
            other.flush()
            client.publish(topic, b"%d" % next(number))
    assert values(client, topic) == [b"%d" % i for i in range(60)]
