"""A producer whose buffer is full, and one that is closed in any state."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import pytest

from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.client.records import Connect, busy, failures_of, numbered, publishes, send_all, values
from kit.deadlines import DEADLINE_S, eventually
from quoth import Ack, Client, ProducerError, Unavailable
from quothwire.errors import error

# -- a full buffer ------------------------------------------------------------------------------------------


def test_full_buffer_raises_where_that_is_asked_for(meddler: Meddler, connect: Connect, topic: str) -> None:
    with connect(meddler).producer(topic, batch=5, max_buffer=10, on_full="raise") as producer:
        meddler.on_request = busy
        send_all(producer, numbered(10))
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
        meddler.on_request = busy
        sent: list[bytes] = []

        def work() -> None:
            for value in numbered(30):
                producer.send(value)
                sent.append(value)

        sending = pool.submit(work)
        eventually(lambda: len(sent) == 10, "it is full")
        assert not sending.done()
        meddler.on_request = pass_on
        sending.result(DEADLINE_S)
    assert values(client, topic) == sent


def test_sender_does_not_wait_for_ever(
    meddler: Meddler, connect: Connect, client: Client, topic: str
) -> None:
    """And what it could not send is certain not to be stored, while what holds it up may well be."""
    with connect(meddler).producer(topic, batch=5, max_buffer=5, timeout=0.1) as producer:
        producer._send_loop._timeout = DEADLINE_S  # of a batch
        meddler.on_request = busy
        send_all(producer, numbered(5))
        with refused("busy"):
            producer.send(b"more")
        meddler.on_request = pass_on
    assert values(client, topic) == numbered(5)


def test_buffer_is_full_when_it_has_enough_bytes_and_a_large_record_always_fits(
    meddler: Meddler, connect: Connect, client: Client, topic: str
) -> None:
    sent = [bytes(5_000), b"a" * 900, b"b" * 900]
    with connect(meddler).producer(topic, on_full="raise") as producer:
        assert producer._options.buffer_bytes_max == 64 * 2**20
        producer._options = producer._options._replace(buffer_bytes_max=1_000)
        meddler.on_request = busy
        for values_taken in (sent[:1], sent[1:]):
            send_all(producer, values_taken)
            with refused("busy"):
                producer.send(b"one too many")
            meddler.on_request = pass_on
            producer.flush(DEADLINE_S)
            meddler.on_request = busy
        meddler.on_request = pass_on
    assert values(client, topic) == sent


# -- closing ------------------------------------------------------------------------------------------------


def test_closing_delivers_everything_and_ends_the_thread(client: Client, topic: str) -> None:
    before = set(threading.enumerate())
    producer = client.producer(topic, linger=60)
    send_all(producer, numbered(2_500))
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
    for value in numbered(40):
        futures.append(producer.future())
        producer.send(value)
    eventually(lambda: sum(map(publishes, meddler.requests)) >= 32, "the window is full")
    failures = failures_of(lambda: producer.close(0.1))
    assert [failure.values for failure in failures] == [[value] for value in numbered(40)]
    assert [failure.outcome for failure in failures] == ["unknown"] * 32 + ["refused"] * 8
    assert {failure.error.code for failure in failures} == {"closed"}
    assert all(future.exception(DEADLINE_S) for future in futures)
    producer.close()


def test_two_threads_may_close_at_once(pooled: Client, topic: str) -> None:
    for turn in range(20):
        producer = pooled.producer(topic, linger=60)
        producer.send(b"%d" % turn)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda close: close(), [producer.close] * 2))
    assert len(values(pooled, topic)) == 20


def test_closing_wakes_a_sender_that_waits(
    meddler: Meddler, connect: Connect, pool: ThreadPoolExecutor, topic: str
) -> None:
    producer = connect(meddler).producer(topic, batch=5, max_buffer=5)
    meddler.on_request = publishes
    send_all(producer, numbered(5))
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
    assert values(client, topic) == numbered(60)
