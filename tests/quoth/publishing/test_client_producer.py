"""The producer as an application uses it: batches, flushing, futures, a full buffer, closing in any state."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.client.records import (
    Connect,
    at_once,
    busy,
    failures_of,
    messages,
    numbered,
    publishes,
    send_all,
    values,
)
from kit.deadlines import DEADLINE_S, eventually, hold
from quoth import Ack, Client, Conflict, ProducerError, RequestError, Unavailable
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import QuothError, error
from quothwire.headers import HEADERS_BYTES_MAX
from quothwire.protocol.binary_codec import Call

# -- records and batches ------------------------------------------------------------------------------------


def test_records_arrive_in_order_with_their_keys_and_headers(client: Client, topic: str) -> None:
    sent: list[dict[str, Any]] = [
        {},
        {"key": b"k"},
        {"key": b""},
        {"headers": {"n": b"v"}},
        {"headers": {}},
        {"key": b"2", "headers": {"ü": b""}},
    ]
    with client.producer(topic) as producer:
        producer.flush()
        for number, more in enumerate(sent):
            producer.send(b"%d" % number, **more)
        producer.flush()
        assert producer.acknowledged == len(sent)
        assert producer.last == client.topic(topic).last
        send_all(producer, numbered(3_000))
    found = messages(client, topic)
    assert [(one.key, one.headers) for one in found[: len(sent)]] == [
        (more.get("key"), more.get("headers", {})) for more in sent
    ]
    assert [one.value for one in found] == [*numbered(len(sent)), *numbered(3_000)]


def test_a_batch_is_sent_when_it_has_enough_records_or_bytes(client: Client, topic: str) -> None:
    with client.producer(topic, batch=10, linger=60) as producer:
        send_all(producer, numbered(25))
        eventually(lambda: producer.acknowledged == 20, "the full ones were sent")
    with client.producer(topic, linger=60) as producer:
        send_all(producer, [bytes(400_000)] * 7)
    assert [len(batch) for batch in client.batches(topic)] == [10, 10, 5, 2, 2, 2, 1]


def test_a_batch_is_sent_after_its_linger_time(client: Client, topic: str) -> None:
    client.create_topic(topic)
    tail = client.tail(topic)
    with client.producer(topic, linger=0.3) as producer:

        def are_sent_in_time() -> bool:
            began = time.monotonic()
            producer.send(b"a")
            producer.send(b"b")
            seconds = time.monotonic() - began
            assert [next(tail).value, next(tail).value] == [b"a", b"b"]
            assert time.monotonic() - began >= 0.3
            return seconds < 0.3

        eventually(are_sent_in_time, "no stall lies between the two")
    *_, last = client.batches(topic)
    assert last.values == [b"a", b"b"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"value": "text"}, "a value is bytes, not str"),
    ({"value": None}, "a value is bytes, not NoneType"),
    ({"value": [b"a"]}, "a value is bytes, not list"),
    ({"value": b"a", "key": "k"}, "a key is bytes or None, not str"),
    ({"value": b"a", "headers": {"n": "v"}}, "values are bytes"),
    ({"value": b"a", "headers": {b"n": b"v"}}, "names are text"),
    ({"value": b"a", "headers": "n"}, "headers are a map of text to bytes"),
    ({"value": b"a", "headers": [("n", b"v")]}, "headers are a map of text to bytes"),
    ({"value": bytes(BATCH_BYTES_MAX)}, "a record of"),
    ({"value": b"", "headers": {"n": bytes(HEADERS_BYTES_MAX)}}, "at most"),
]


def test_a_wrong_record_is_refused_alone(client: Client, topic: str) -> None:
    sent = [b"before", bytes(BATCH_BYTES_MAX - 256), b"after"]
    with client.producer(topic, linger=60) as producer:
        for value in sent:
            producer.send(value)
            for arguments, text in WRONG:
                with pytest.raises(RequestError) as caught:
                    producer.send(**arguments)
                assert text in caught.value.text
    assert values(client, topic) == sent


def test_wrong_options_are_refused(client: Client) -> None:
    for options, code in (
        ({"batch": 0}, "bad_request"),
        ({"batch": 100_001}, "bad_request"),
        ({"batch": 1.5}, "bad_request"),
        ({"batch": "9"}, "bad_request"),
        ({"max_buffer": None}, "bad_request"),
        ({"max_buffer": 1e9}, "bad_request"),
        ({"timeout": None}, "bad_request"),
        ({"on_full": "drop"}, "bad_request"),
        ({"durability": "eternal"}, "bad_request"),
        ({"topic": "a/b"}, "bad_topic"),
    ):
        with refused(code):
            client.producer(**{"topic": "t", **options})  # type: ignore[arg-type]


def test_threads_that_share_a_producer_each_keep_their_order(client: Client, topic: str) -> None:
    """Their flushes all return."""
    with client.producer(topic, batch=50, linger=60) as producer:

        def work(me: int) -> None:
            for number in range(250):
                producer.send(b"%d %d" % (me, number))
                if number % 50 == 0:
                    producer.flush(DEADLINE_S)

        at_once(4, work)
    found = values(client, topic)
    assert len(found) == 1_000
    for me in range(4):
        mine = [value for value in found if value.startswith(b"%d " % me)]
        assert mine == [b"%d %d" % (me, number) for number in range(250)]


# -- flushing and futures -----------------------------------------------------------------------------------


def test_a_flush_does_not_wait_for_records_that_other_threads_send_later(client: Client, topic: str) -> None:
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


def test_a_flush_that_times_out_leaves_its_records_in_flight(
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


def test_a_future_has_the_acknowledgement_of_the_next_record(client: Client, topic: str) -> None:
    """Also when the batch that was being filled is sent meanwhile, or has no room for it."""
    with client.producer(topic, batch=2, linger=60, durability="synced") as producer:
        first = producer.future()
        producer.send(b"a")
        second = producer.future()
        producer.send(b"b")
        producer.send(b"c")
        later = producer.future()
        producer.flush()
        producer.send(b"d")
        large = producer.future()
        producer.send(bytes(2**20))
        never = producer.future()
    found = messages(client, topic)
    ack = Ack(found[0].pointer, found[1].pointer, 2, "synced", False)
    assert first.result(DEADLINE_S) == second.result(DEADLINE_S) == ack
    assert later.result(DEADLINE_S) == Ack(found[3].pointer, found[3].pointer, 1, "synced", False)
    assert large.result(DEADLINE_S).first == found[4].pointer
    with refused("closed"):
        never.result(DEADLINE_S)


def test_a_flush_waits_for_the_callbacks_of_futures(
    pooled: Client, pool: ThreadPoolExecutor, topic: str
) -> None:
    called, go_on = threading.Event(), threading.Event()

    def hear(_: Future[Ack]) -> None:
        called.set()
        go_on.wait(DEADLINE_S)

    with pooled.producer(topic) as producer:
        future = producer.future()
        assert not future.cancel(), "a cancelled future would end the producer's thread"
        future.add_done_callback(hear)
        producer.send(b"a")
        flushing = pool.submit(producer.flush)
        assert called.wait(DEADLINE_S)
        hold(lambda: not flushing.done(), "it waits for the callback", 0.1)
        go_on.set()
        flushing.result(DEADLINE_S)


def test_a_callback_may_send_while_the_buffer_is_full(pooled: Client, topic: str) -> None:
    with pooled.producer(topic, batch=1, max_buffer=1, timeout=DEADLINE_S) as producer:
        done = threading.Event()

        def go_on(_: Future[Ack]) -> None:
            producer.send(b"b")
            done.set()

        producer.future().add_done_callback(go_on)
        producer.send(b"a")
        assert done.wait(DEADLINE_S / 2)
    assert values(pooled, topic) == [b"a", b"b"]


# -- a full buffer ------------------------------------------------------------------------------------------


def test_a_full_buffer_raises_if_so_configured(
    meddler: Meddler, connect: Connect, client: Client, topic: str
) -> None:
    """Full of records or of bytes; a large record always fits into an empty one."""
    with connect(meddler).producer(topic, batch=5, max_buffer=10, on_full="raise") as producer:
        assert producer._options.buffer_bytes_max == 64 * 2**20
        producer._options = producer._options._replace(buffer_bytes_max=1_000)
        for sent in (numbered(10), [bytes(5_000)], [b"a" * 900, b"b" * 900]):
            meddler.on_request = busy
            send_all(producer, sent)
            with pytest.raises(Unavailable, match="not taken") as caught:
                producer.send(b"one too many")
            assert caught.value.code == "busy"
            meddler.on_request = pass_on
            producer.flush(DEADLINE_S)
    assert values(client, topic) == [*numbered(10), bytes(5_000), b"a" * 900, b"b" * 900]


def test_a_sender_waits_for_room_in_the_buffer_until_its_timeout(
    meddler: Meddler, connect: Connect, client: Client, pool: ThreadPoolExecutor, topic: str
) -> None:
    records = numbered(30)
    with connect(meddler).producer(topic, batch=5, max_buffer=10, timeout=DEADLINE_S) as producer:
        meddler.on_request = busy
        for value in records[:10]:
            producer.send(value)
        options, producer._options = producer._options, producer._options._replace(timeout=0.1)
        with refused("busy"):
            producer.send(b"never stored")
        producer._options = options
        sending = pool.submit(lambda: [producer.send(value) for value in records[10:]])
        with pytest.raises(TimeoutError):
            sending.result(0.05)
        meddler.on_request = pass_on
        sending.result(DEADLINE_S)
    assert values(client, topic) == records


def test_threads_that_send_at_once_fill_the_buffer_to_its_limit(
    meddler: Meddler, connect: Connect, client: Client, topic: str
) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with (
            connect(meddler).producer(topic, batch=50, max_buffer=120, timeout=DEADLINE_S) as producer,
            ThreadPoolExecutor(4) as pool,
        ):
            meddler.on_request = busy

            def work(me: int) -> None:
                for number in range(200):
                    producer.send(b"%d %d" % (me, number))

            sending = [pool.submit(work, me) for me in range(4)]
            eventually(lambda: producer._records == 120, "it is full")
            with pytest.raises(TimeoutError):
                sending[0].result(0.05)
            assert producer._records == 120
            meddler.on_request = pass_on
            for one in sending:
                one.result(DEADLINE_S)
    finally:
        sys.setswitchinterval(before)
    found = values(client, topic)
    for me in range(4):
        mine = [value for value in found if value.startswith(b"%d " % me)]
        assert mine == [b"%d %d" % (me, number) for number in range(200)]


# -- closing ------------------------------------------------------------------------------------------------


def test_closing_delivers_all_records_and_ends_the_thread(pooled: Client, topic: str) -> None:
    before = set(threading.enumerate())
    for turn in range(20):
        producer = pooled.producer(topic, linger=60)
        producer.send(b"%d" % turn)
        with ThreadPoolExecutor(2) as pool:  # two threads may close at once
            list(pool.map(lambda close: close(), [producer.close] * 2))
    assert values(pooled, topic) == numbered(20)
    assert set(threading.enumerate()) <= before


def test_a_closed_producer_refuses_everything(client: Client, topic: str) -> None:
    producer = client.producer(topic)
    producer.close()
    producer.close()
    for call in (lambda: producer.send(b"a"), producer.flush, producer.future):
        with refused("closed"):
            call()
    with refused("unknown_topic"):
        client.topic(topic)


def test_closing_with_a_timeout_reports_undelivered_batches_and_their_outcome(
    meddler: Meddler, connect: Connect, pool: ThreadPoolExecutor, topic: str
) -> None:
    producer = connect(meddler).producer(topic, batch=1, linger=60, max_buffer=40)
    meddler.on_request = publishes
    futures: list[Future[Ack]] = []
    for value in numbered(40):
        futures.append(producer.future())
        producer.send(value)
    waiting = pool.submit(producer.send, b"more")
    eventually(lambda: sum(map(publishes, meddler.requests)) >= 32, "the window is full")
    failures = failures_of(lambda: producer.close(0.1))
    assert [failure.values for failure in failures] == [[value] for value in numbered(40)]
    assert [failure.outcome for failure in failures] == ["unknown"] * 32 + ["refused"] * 8
    assert {failure.error.code for failure in failures} == {"closed"}
    assert all(future.exception(DEADLINE_S) for future in futures)
    with refused("closed"):
        waiting.result(DEADLINE_S)
    producer.close()


def send_and_fail(client: Client, topic: str) -> None:
    """An application that fails while its producer is open."""
    with client.producer(topic, linger=60) as producer:
        producer.send(b"a")
        raise ZeroDivisionError


def test_an_exception_in_the_block_is_raised_after_the_delivery(
    meddler: Meddler, connect: Connect, topic: str
) -> None:
    client = connect(meddler)
    with pytest.raises(ZeroDivisionError):
        send_and_fail(client, topic)
    assert values(client, topic) == [b"a"]
    meddler.on_request = lambda call: error("bad_batch", "of the test")
    with pytest.raises(ProducerError) as caught:
        send_and_fail(client, topic)
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_a_stream_that_stops_stores_nothing_behind_a_batch_that_failed(
    meddler: Meddler, connect: Connect, client: Client, topic: str
) -> None:
    """One batch is refused for good while others are in flight behind it, and wait."""

    def refuse_third_once(call: Call) -> QuothError | bool:
        is_third = publishes(call) and call.correlation % 2**32 == 3 and not producer.failure
        return error("quota_exceeded", "of the test") if is_third else False

    meddler.on_request = refuse_third_once
    producer = connect(meddler).producer(topic, batch=1, max_buffer=100, on_failure="stop")
    with pytest.raises(Conflict):
        send_all(producer, numbered(10_000))
    failures = failures_of(producer.flush)
    assert [failure.values[0] for failure in failures] == numbered(10_000)[2 : 2 + len(failures)]
    assert {(failure.outcome, failure.error.code) for failure in failures} == {("refused", "quota_exceeded")}
    with pytest.raises(Conflict):
        producer.send(b"later")
    producer.close()
    assert values(client, topic) == numbered(10_000)[:2]
    assert producer.acknowledged == 2
