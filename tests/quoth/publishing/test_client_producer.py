"""The producer as an application uses it: batches, flushing, futures, a full buffer, closing in any state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.deadlines import DEADLINE_S, eventually, hold
from quoth import Ack, Client, Failure, Messages, Producer, ProducerError, RequestError, Unavailable
from quoth import producer as producer_module
from quoth.connection.send_loop import SendLoop
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import error
from quothwire.headers import HEADERS_BYTES_MAX
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
    """What a flush or a closing tells."""
    with pytest.raises(ProducerError) as caught:
        ending()
    return caught.value.failures


# -- records and batches ------------------------------------------------------------------------------------


def test_everything_that_is_sent_arrives_in_order(client: Client, topic: str) -> None:
    sent = [b"%d" % i for i in range(10_000)]
    with client.producer(topic) as producer:
        for value in sent:
            producer.send(value)
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
        for number in range(25):
            producer.send(b"%d" % number)
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
        for _ in range(7):
            producer.send(bytes(400_000))
    assert [len(batch) for batch in client.batches(topic)] == [2, 2, 2, 1]


def test_batches_fit_a_broker_with_small_frames(start_broker: StartBroker, connect: Connect) -> None:
    client = connect(start_broker(frame_bytes_max=5_000))
    with client.producer("t", linger=60) as producer:
        for number in range(1_000):
            producer.send(b"%d" % number, key=b"k", headers={"n": b"v"})
        with refused("too_large"):
            producer.send(bytes(5_000))
        producer.send(bytes(4_500))
    assert values(client, "t") == [b"%d" % number for number in range(1_000)] + [bytes(4_500)]


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
    with client.producer(topic, batch=50) as producer, ThreadPoolExecutor(8) as pool:

        def work(me: int) -> None:
            for number in range(1_000):
                producer.send(b"%d %d" % (me, number))

        for done in [pool.submit(work, me) for me in range(8)]:
            done.result()
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


def test_flushes_of_several_threads_all_return(client: Client, topic: str) -> None:
    with client.producer(topic, linger=60) as producer, ThreadPoolExecutor(8) as pool:

        def work(me: int) -> None:
            for number in range(20):
                producer.send(b"%d %d" % (me, number))
                producer.flush(DEADLINE_S)

        for done in [pool.submit(work, me) for me in range(8)]:
            done.result()
    assert len(values(client, topic)) == 160


def test_flush_that_takes_too_long_says_so_and_what_was_sent_is_still_on_its_way(
    meddler: Meddler, connect: Connect, topic: str
) -> None:
    with connect(meddler).producer(topic) as producer:
        meddler.on_request = lambda call: error("busy", "of the test")
        for number in range(3):
            producer.send(b"%d" % number)
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
    assert first.result(0) == second.result(0) == ack
    assert third.result(0) == Ack(found[2].pointer, found[2].pointer, 1, "synced", False)


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
    assert lingered.result(0).first == found[1].pointer
    assert large.result(0).first == found[2].pointer


def test_future_of_a_batch_that_failed_has_its_error(meddler: Meddler, connect: Connect, topic: str) -> None:
    producer = connect(meddler).producer(topic, linger=60)
    meddler.on_request = lambda call: error("bad_batch", "of the test")
    future = producer.future()
    producer.send(b"a")
    (failure,) = failures_of(producer.flush)
    assert future.exception(0) is failure.error
    producer.close()


def test_future_cannot_be_cancelled(pooled: Client, topic: str) -> None:
    """A cancelled future would end the producer's thread."""
    with pooled.producer(topic, linger=60) as producer:
        future = producer.future()
        assert producer.future() is future
        assert not future.cancel()
        producer.send(b"a")
    assert future.result(0).count == 1


def test_flush_returns_when_the_futures_are_done(
    pooled: Client, pool: ThreadPoolExecutor, topic: str
) -> None:
    """And whoever waits for one of them has been told."""
    told, go_on = threading.Event(), threading.Event()

    def hear(_: Future[Ack]) -> None:
        told.set()
        go_on.wait(DEADLINE_S)

    with pooled.producer(topic) as producer:
        producer.future().add_done_callback(hear)
        producer.send(b"a")
        flushing = pool.submit(producer.flush)
        assert told.wait(DEADLINE_S)
        hold(lambda: not flushing.done(), "it waits for who is being told", 0.1)
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
        future.result(0)


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
    assert all(future.exception(0) for future in futures)
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
