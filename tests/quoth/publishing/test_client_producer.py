"""The producer as an application uses it: batches, flushing, futures, a full buffer, closing in any state."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.client.records import Connect, at_once, busy, failures_of, messages, numbered, send_all, values
from kit.deadlines import DEADLINE_S, eventually, hold
from quoth import Ack, Client, RequestError
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import error
from quothwire.headers import HEADERS_BYTES_MAX

# -- records and batches ------------------------------------------------------------------------------------


def test_everything_that_is_sent_arrives_in_order(client: Client, topic: str) -> None:
    sent = numbered(10_000)
    with client.producer(topic) as producer:
        send_all(producer, sent)
        producer.flush()
        assert producer.acknowledged == len(sent)
        assert producer.last == client.topic(topic).last
    assert values(client, topic) == sent


def test_keys_and_headers_go_with_their_record(client: Client, topic: str) -> None:
    sent: list[dict[str, Any]] = [
        {},
        {"key": b"k"},
        {"key": b""},
        {"headers": {"n": b"v"}},
        {"headers": {}},
        {"key": b"2", "headers": {"ü": b""}},
    ]
    with client.producer(topic) as producer:
        for number, more in enumerate(sent):
            producer.send(b"%d" % number, **more)
    found = [(message.key, message.headers) for message in messages(client, topic)]
    assert found == [(more.get("key"), more.get("headers", {})) for more in sent]


def test_batch_leaves_when_it_is_full(client: Client, topic: str) -> None:
    with client.producer(topic, batch=10, linger=60) as producer:
        send_all(producer, numbered(25))
        eventually(lambda: producer.acknowledged == 20, "the full ones have left")
    assert [len(batch) for batch in client.batches(topic)] == [10, 10, 5]


def test_batch_leaves_when_it_has_lingered(client: Client, topic: str) -> None:
    client.create_topic(topic)
    tail = client.tail(topic)
    with client.producer(topic, linger=1.0) as producer:  # far beyond the time between the two
        began = time.monotonic()
        producer.send(b"a")
        producer.send(b"b")
        assert [next(tail).value, next(tail).value] == [b"a", b"b"]
        assert time.monotonic() - began >= 1.0
    assert [len(batch) for batch in client.batches(topic)] == [2]


def test_batch_leaves_when_it_has_enough_bytes(client: Client, topic: str) -> None:
    with client.producer(topic, linger=60) as producer:
        send_all(producer, [bytes(400_000)] * 7)
    assert [len(batch) for batch in client.batches(topic)] == [2, 2, 2, 1]


def test_batches_fit_a_broker_with_small_frames(start_broker: StartBroker, connect: Connect) -> None:
    client = connect(start_broker(frame_bytes_max=5_000))
    with client.producer("t", linger=60) as producer:
        for number in range(1_000):
            producer.send(b"%d" % number, key=b"k", headers={"n": b"v"})
        with refused("too_large"):
            producer.send(bytes(5_000))
        producer.send(bytes(4_500))
    assert values(client, "t") == [*numbered(1_000), bytes(4_500)]


def test_largest_record_is_taken_and_a_larger_one_refused_alone(client: Client, topic: str) -> None:
    largest = bytes(BATCH_BYTES_MAX - 256)
    with client.producer(topic, linger=60) as producer:
        producer.send(b"before")
        producer.send(largest)
        with pytest.raises(RequestError) as caught:
            producer.send(bytes(BATCH_BYTES_MAX))
        assert caught.value.code == "too_large"
        with refused("too_large"):
            producer.send(b"", headers={"n": bytes(HEADERS_BYTES_MAX)})
        producer.send(b"after")
    assert values(client, topic) == [b"before", largest, b"after"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"value": "text"}, "a value is bytes, not str"),
        ({"value": None}, "a value is bytes, not NoneType"),
        ({"value": [b"a"]}, "a value is bytes, not list"),
        ({"value": b"a", "key": "k"}, "a key is bytes or None, not str"),
        ({"value": b"a", "headers": {"n": "v"}}, "values are bytes"),
        ({"value": b"a", "headers": {b"n": b"v"}}, "names are text"),
        ({"value": b"a", "headers": "n"}, "headers are a map of text to bytes"),
        ({"value": b"a", "headers": [("n", b"v")]}, "headers are a map of text to bytes"),
    ],
)
def test_wrong_arguments_are_refused_at_once_and_harm_nothing(
    client: Client, topic: str, arguments: dict[str, Any], text: str
) -> None:
    with client.producer(topic, linger=60) as producer:
        producer.send(b"before")
        with pytest.raises(RequestError) as caught:
            producer.send(**arguments)
        assert text in caught.value.text
        producer.send(b"after")
    assert values(client, topic) == [b"before", b"after"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"batch": 0}, "bad_request"),
        ({"batch": 100_001}, "bad_request"),
        ({"on_full": "drop"}, "bad_request"),
        ({"durability": "eternal"}, "bad_request"),
        ({"topic": "a/b"}, "bad_topic"),
    ],
)
def test_wrong_options_are_refused(client: Client, options: dict[str, Any], code: str) -> None:
    with refused(code):
        client.producer(**{"topic": "t", **options})


def test_threads_share_a_producer_and_each_keeps_its_order(client: Client, topic: str) -> None:
    """Their flushes all return."""
    with client.producer(topic, batch=50, linger=60) as producer:

        def work(me: int) -> None:
            for number in range(1_000):
                producer.send(b"%d %d" % (me, number))
                if number % 50 == 0:
                    producer.flush(DEADLINE_S)

        at_once(8, work)
    found = values(client, topic)
    assert len(found) == 8_000
    for me in range(8):
        mine = [value for value in found if value.startswith(b"%d " % me)]
        assert mine == [b"%d %d" % (me, number) for number in range(1_000)]


# -- flushing and futures -----------------------------------------------------------------------------------


def test_flush_returns_when_everything_is_stored(client: Client, topic: str) -> None:
    with client.producer(topic, linger=60) as producer:
        producer.flush()
        for number in range(5):
            producer.send(b"%d" % number)
            producer.flush()
            assert producer.acknowledged == number + 1
            assert values(client, topic)[-1] == b"%d" % number
        producer.flush()


def test_flush_is_not_kept_by_what_others_go_on_sending(client: Client, topic: str) -> None:
    over = threading.Event()
    with client.producer(topic, batch=100, max_buffer=500) as producer, ThreadPoolExecutor() as pool:

        def work() -> None:
            while not over.is_set():
                producer.send(b"theirs")

        try:
            sending = pool.submit(work)
            for number in range(5):
                producer.send(b"mine %d" % number)
                producer.flush(DEADLINE_S)
            found = values(client, topic)
            assert [value for value in found if value != b"theirs"] == [b"mine %d" % i for i in range(5)]
            assert sending.running()
        finally:
            over.set()


def test_flush_that_takes_too_long_says_so_and_what_was_sent_is_still_on_its_way(
    meddler: Meddler, connect: Connect, topic: str
) -> None:
    with connect(meddler).producer(topic) as producer:
        meddler.on_request = busy
        send_all(producer, numbered(3))
        with refused("timed_out"):
            producer.flush(0.1)
        meddler.on_request = pass_on
        producer.flush(DEADLINE_S)
        assert producer.acknowledged == 3


def test_future_is_that_of_the_next_record_and_its_batch(client: Client, topic: str) -> None:
    with client.producer(topic, batch=2, linger=60, durability="synced") as producer:
        first = producer.future()
        producer.send(b"a")
        second = producer.future()
        producer.send(b"b")
        third = producer.future()
        producer.send(b"c")
        producer.flush()
    found = messages(client, topic)
    ack = Ack(found[0].pointer, found[1].pointer, 2, "synced", False)
    assert first.result(DEADLINE_S) == second.result(DEADLINE_S) == ack
    assert third.result(DEADLINE_S) == Ack(found[2].pointer, found[2].pointer, 1, "synced", False)


def test_future_follows_its_record_into_a_later_batch(client: Client, topic: str) -> None:
    """Also when the batch that was being filled leaves meanwhile, or has no room for it."""
    with client.producer(topic, linger=60) as producer:
        producer.send(b"a")
        lingered = producer.future()
        producer.flush()
        producer.send(b"b")
        large = producer.future()
        producer.send(bytes(2**20))
    found = messages(client, topic)
    assert lingered.result(DEADLINE_S).first == found[1].pointer
    assert large.result(DEADLINE_S).first == found[2].pointer


def test_future_of_a_batch_that_failed_has_its_error(meddler: Meddler, connect: Connect, topic: str) -> None:
    producer = connect(meddler).producer(topic, linger=60)
    meddler.on_request = lambda call: error("bad_batch", "of the test")
    future = producer.future()
    producer.send(b"a")
    (failure,) = failures_of(producer.flush)
    assert future.exception(DEADLINE_S) is failure.error
    producer.close()


def test_future_cannot_be_cancelled(pooled: Client, topic: str) -> None:
    """A cancelled future would end the producer's thread."""
    with pooled.producer(topic, linger=60) as producer:
        future = producer.future()
        assert producer.future() is future
        assert not future.cancel()
        producer.send(b"a")
    assert future.result(DEADLINE_S).count == 1


def test_flush_returns_when_the_futures_are_done(
    pooled: Client, pool: ThreadPoolExecutor, topic: str
) -> None:
    """Their callbacks have returned, too."""
    told, go_on = threading.Event(), threading.Event()

    def hear(_: Future[Ack]) -> None:
        told.set()
        go_on.wait(DEADLINE_S)

    with pooled.producer(topic) as producer:
        producer.future().add_done_callback(hear)
        producer.send(b"a")
        flushing = pool.submit(producer.flush)
        assert told.wait(DEADLINE_S)
        hold(lambda: not flushing.done(), "it waits for the callback", 0.1)
        go_on.set()
        flushing.result(DEADLINE_S)


def test_callback_of_a_batch_may_send_the_next_although_one_fills_the_buffer(
    pooled: Client, topic: str
) -> None:
    with pooled.producer(topic, batch=1, max_buffer=1, timeout=DEADLINE_S) as producer:
        done = threading.Event()

        def go_on(_: Future[Ack]) -> None:
            producer.send(b"b")
            done.set()

        producer.future().add_done_callback(go_on)
        producer.send(b"a")
        assert done.wait(DEADLINE_S / 2)
    assert values(pooled, topic) == [b"a", b"b"]


def test_future_of_a_batch_that_never_came_ends_with_the_producer(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        future = producer.future()
    with refused("closed"):
        future.result(DEADLINE_S)
