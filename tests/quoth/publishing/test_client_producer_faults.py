"""The producer when things go wrong: everything acknowledged is there once and in order, and the account of
the rest is exact."""

from __future__ import annotations

import pickle
import random
import threading
import time
from itertools import count

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.proxies import Meddler
from kit.client.records import Connect, failures_of, numbered, publishes, send_all, values
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.scale import times
from quoth import Ack, Client, Failure, ProducerError
from quoth.core.inflight import IN_FLIGHT_MAX
from quoth.core.options import Timing
from quoth.core.outgoing import ProducerBatch
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer, Call


def test_failures_hold_the_records_to_send_again_and_are_reported_once(
    start_broker: StartBroker, connect: Connect
) -> None:
    client = connect(start_broker(auto_create=False))
    with client.producer("t", batch=2, linger=60) as producer:
        producer.send(b"a", key=b"k", headers={"n": b"v"})
        producer.send(b"b")
        producer.send(b"c")
        with pytest.raises(ProducerError) as caught:
            producer.flush()
        copy = pickle.loads(pickle.dumps(caught.value))  # handed to another process
        first, second = copy.failures
        assert first.error.text == caught.value.failures[0].error.text
        assert (first.values, first.keys, first.headers) == ([b"a", b"b"], [b"k", None], [{"n": b"v"}, {}])
        assert (second.values, second.outcome, second.error.code) == ([b"c"], "refused", "unknown_topic")
        assert copy.code == "unknown_topic"
        assert "3 records" in caught.value.text
        producer.flush()
        client.create_topic("t")
        for failure in (first, second):
            rows = zip(failure.values, failure.keys, failure.headers, strict=True)
            for value, key, headers in rows:
                producer.send(value, key=key, headers=headers)
        producer.flush()
        assert producer.acknowledged == 3
    assert [(one.value, one.key, one.headers) for one in client.read("t")] == [
        (b"a", b"k", {"n": b"v"}),
        (b"b", None, {}),
        (b"c", None, {}),
    ]


def test_a_flush_during_the_end_of_the_client_waits_for_the_failures(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = client.producer(topic, linger=60)
    producer.send(b"never sent")
    settle, is_settled = producer._settle, list[bool]()

    def settle_late(done: ProducerBatch, outcome: Ack | Failure) -> None:
        is_settled.append(producer._is_settled(done.number))
        settle(done, outcome)

    monkeypatch.setattr(producer, "_settle", settle_late)
    client.close()
    (failure,) = failures_of(producer.flush)
    assert failure.values == [b"never sent"]
    assert is_settled == [False]


# -- errors, lost requests and lost replies -----------------------------------------------------------------


def test_a_pipeline_with_errors_and_lost_messages_is_stored_once_and_in_order(
    meddler: Meddler, impatient: Client, client: Client, topic: str, rng: random.Random
) -> None:
    """Batches behind a refused one are refused as `out_of_sequence`."""
    impatient._timing.resend = 0.05

    def strike(call: Call, answer: Answer | None = None) -> QuothError | bool:
        chance = rng.random() if publishes(call) else 1.0
        if chance < 0.1 and answer is None:
            return error(rng.choice(["busy", "recovering", "stopping", "disk_low"]), "of the test")
        return chance < 0.2

    meddler.on_request = strike
    meddler.on_reply = lambda call, answer: bool(strike(call, answer))
    sent = numbered(500)
    with impatient.producer(topic, batch=5) as producer:
        send_all(producer, sent)
    assert producer.acknowledged == 500
    assert values(client, topic) == sent


@pytest.mark.parametrize("in_flight", [IN_FLIGHT_MAX, 0])
def test_absent_broker_leaves_sent_batches_unknown_and_fails_the_others(
    own_broker: BrokerProcess, own_client: Client, in_flight: int
) -> None:
    """Nothing is sent without a connection, so all later failures are certain."""
    sent = numbered(100)
    with own_client.producer("t", batch=1) as producer:
        producer.send(b"before")
        producer.flush()
        if in_flight:
            own_broker.freeze()
            send_all(producer, sent)
            eventually(lambda: len(producer._inflight) == in_flight, "the window is full")
        own_broker.kill()
        eventually(lambda: producer._link.connected is False, "the loss is noticed")
        if not in_flight:
            send_all(producer, sent)
        producer._send_loop._timeout = 0.0
        failures = failures_of(producer.flush)
        assert [failure.values for failure in failures] == [[value] for value in sent]
        outcomes = [failure.outcome for failure in failures]
        assert outcomes == ["unknown"] * in_flight + ["refused"] * (100 - in_flight)
        assert failures[0].error.code == ("disconnected" if in_flight else "timed_out")
        own_broker.restart()
    own_client.publish("t", b"after")
    before, *maybe, after = values(own_client, "t")
    assert (before, after) == (b"before", b"after")
    assert maybe == sent[: len(maybe)]
    assert len(maybe) <= in_flight


def test_copies_do_not_accumulate_while_the_broker_is_absent(
    own_broker: BrokerProcess, own_client: Client
) -> None:
    timing = own_client._timing
    with own_client.producer("t", batch=1) as producer:
        producer.send(b"before")
        producer.flush()
        own_broker.freeze()
        send_all(producer, numbered(10))
        eventually(lambda: len(producer._inflight) == 10, "all are on their way")
        own_broker.kill()
        eventually(lambda: producer._link.connected is False, "the loss is noticed")
        timing.resend = 0.01
        pause(0.5)  # fifty times what is waited for an answer
        timing.resend = Timing().resend
        own_broker.restart()
        producer.flush(DEADLINE_S)
        assert own_client.status().counters["requests"] < 60
    assert values(own_client, "t") == [b"before", *numbered(10)]


def send_and_interrupt(client: Client, topic: str) -> None:
    """A program that is ended by Ctrl-C while its producer is open."""
    with client.producer(topic, linger=60) as producer:
        producer.send(b"a")
        raise KeyboardInterrupt


def test_an_interrupt_delivers_what_it_can_without_waiting_for_an_absent_broker(
    own_broker: BrokerProcess, own_client: Client
) -> None:
    """The program ends although the two minutes have not passed that a delivery may take."""
    before = threading.active_count()
    interrupted, own_client._timing.interrupted = own_client._timing.interrupted, DEADLINE_S
    with pytest.raises(KeyboardInterrupt):
        send_and_interrupt(own_client, "t")
    assert values(own_client, "t") == [b"a"]
    own_client._timing.interrupted = interrupted
    own_broker.kill()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        send_and_interrupt(own_client, "t")
    assert time.monotonic() - began < DEADLINE_S
    assert threading.active_count() <= before


# -- kills --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["written", "synced"])
def test_kills_at_any_moment_leave_an_exact_account(
    own_broker: BrokerProcess, own_client: Client, rng: random.Random, durability: str
) -> None:
    """A producer with a short timeout reports the batches that it gives up; no other is missing."""
    own_client.create_topic("t")
    failures: list[Failure] = []
    number = count()
    producer = own_client.producer("t", batch=5, linger=0.001, timeout=0.4, durability=durability)  # type: ignore[arg-type]
    for _ in range(times(3, 40)):
        send_all(producer, [b"%d" % next(number) for _ in range(rng.randint(50, 400))])
        eventually(lambda: producer._records < rng.randint(1, 400), "some of it is on its way")
        own_broker.kill()
        send_all(producer, [b"%d" % next(number) for _ in range(rng.randint(1, 300))])
        own_broker.restart()
        try:
            producer.flush(DEADLINE_S)
        except ProducerError as problem:
            failures += problem.failures
    producer.close()
    found = list(map(int, values(own_client, "t")))
    unknown = {int(value) for one in failures if one.outcome == "unknown" for value in one.values}
    never = {int(value) for one in failures if one.outcome == "refused" for value in one.values}
    everything = set(range(next(number)))
    assert found == sorted(set(found)), "once and in order"
    assert everything - unknown - never <= set(found), "acknowledged is stored"
    assert not never & set(found), "refused is not"
    assert producer.acknowledged == len(everything - unknown - never)
