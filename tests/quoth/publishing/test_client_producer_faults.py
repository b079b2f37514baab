"""The producer when things go wrong: everything acknowledged is there once and in order, and the account of
the rest is exact."""

from __future__ import annotations

import pickle
import random
import threading
import time
from itertools import count
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler
from kit.client.records import Connect, failures_of, numbered, publishes, send_all, values
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.doubles import FaultyDisk
from kit.scale import times
from quoth import Client, Failure, ProducerError
from quoth.core.inflight import IN_FLIGHT_MAX
from quoth.core.timing import Timing
from quothd import Broker
from quothwire import batch
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer, Call


def values_in(call: Call) -> list[bytes]:
    """Return the values of a publish."""
    return batch.decode(call.payload).values


# -- failures -------------------------------------------------------------------------------


def test_failures_hold_what_is_needed_to_send_again_and_are_told_once(
    start_broker: StartBroker, connect: Connect
) -> None:
    client = connect(start_broker(auto_create=False))
    with client.producer("t", batch=2, linger=60) as producer:
        producer.send(b"a", key=b"k", headers={"n": b"v"})
        producer.send(b"b")
        producer.send(b"c")
        with pytest.raises(ProducerError) as caught:
            producer.flush()
        first, second = caught.value.failures
        assert (first.values, first.keys, first.headers) == ([b"a", b"b"], [b"k", None], [{"n": b"v"}, {}])
        assert (second.values, second.outcome, second.error.code) == ([b"c"], "refused", "unknown_topic")
        assert caught.value.code == "unknown_topic"
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


def test_producer_error_can_be_handed_to_another_process() -> None:
    failure = Failure([b"a"], [None], [{}], "unknown", error("busy", "of the test"))
    copy = pickle.loads(pickle.dumps(ProducerError([failure])))
    assert isinstance(copy, ProducerError)
    assert copy.code == "busy"
    assert copy.failures[0].values == [b"a"]
    assert copy.failures[0].error.text == "of the test"


# -- refusals in the middle of a pipeline -------------------------------------------------------------------


@pytest.mark.parametrize("code", ["busy", "recovering", "stopping", "disk_low"])
def test_passing_refusals_keep_the_order_and_store_once(
    meddler: Meddler, connect: Connect, client: Client, topic: str, rng: random.Random, code: str
) -> None:
    """One in seven is refused, whichever it is, first and later copies alike; then the broker refuses those
    behind it as `out_of_sequence`."""
    begun = count()
    meddler.on_request = lambda call: (
        error(code, "of the test") if publishes(call) and next(begun) and rng.random() < 1 / 7 else False
    )
    sent = numbered(500)
    with connect(meddler).producer(topic, batch=5) as producer:
        send_all(producer, sent)
    assert producer.acknowledged == 500
    assert values(client, topic) == sent


def test_definite_refusals_fail_their_own_batch_and_no_other(
    meddler: Meddler, connect: Connect, client: Client, topic: str
) -> None:
    def rule(call: Call) -> QuothError | bool:
        poisoned = publishes(call) and any(int(value) % 100 == 50 for value in values_in(call))
        return error("bad_batch", "of the test") if poisoned else False

    meddler.on_request = rule
    sent = numbered(1_000)
    producer = connect(meddler).producer(topic, batch=10)
    send_all(producer, sent)
    failures = failures_of(producer.close)
    assert [failure.values for failure in failures] == [
        numbered(10, first) for first in range(50, 1_000, 100)
    ]
    assert {(failure.outcome, failure.error.code) for failure in failures} == {("refused", "bad_batch")}
    lost = {value for failure in failures for value in failure.values}
    assert values(client, topic) == [value for value in sent if value not in lost]
    assert producer.acknowledged == 900


def test_batch_without_a_topic_is_refused_and_those_behind_its_making_are_stored(
    start_broker: StartBroker, connect: Connect
) -> None:
    client = connect(start_broker(auto_create=False))
    client.create_topic("t")
    sent = numbered(300)
    with client.producer("t", batch=10) as producer:
        send_all(producer, sent[:100])
        producer.flush()
        client.delete_topic("t")
        send_all(producer, sent[100:200])
        failures = failures_of(producer.flush)
        assert [value for failure in failures for value in failure.values] == sent[100:200]
        assert {(one.outcome, one.error.code) for one in failures} == {("refused", "unknown_topic")}
        client.create_topic("t")
        send_all(producer, sent[200:])
    assert values(client, "t") == sent[200:]


def test_full_disk_holds_the_producer_up_until_there_is_room(
    own_broker: BrokerProcess, own_client: Client
) -> None:
    sent = numbered(400)
    with own_client.producer("t", batch=10) as producer:
        send_all(producer, sent[:200])
        producer.flush()
        own_broker.terminate()
        own_broker.restart(disk_free_min=2**60)
        send_all(producer, sent[200:])
        with refused("timed_out"):
            producer.flush(0.3)
        own_broker.terminate()
        own_broker.restart(disk_free_min=0)
    assert values(own_client, "t") == sent


def test_failing_disk_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """A batch may have been written before the fsync failed."""
    disk, sent = FaultyDisk(), numbered(20)
    with Broker(tmp_path, filesystem=disk) as broker, quoth.connect(broker) as client:
        producer = client.producer("t", batch=1, durability="synced")
        send_all(producer, sent[:10])
        producer.flush()
        disk.fail("sync", lasting=True)
        send_all(producer, sent[10:])
        failures = failures_of(producer.flush)
        disk.heal()
        assert [value for failure in failures for value in failure.values] == sent[10:]
        assert {failure.outcome for failure in failures} == {"unknown"}
        assert failures[0].error.code == "storage_failed"
        producer.close()
    with Broker(tmp_path) as broker, quoth.connect(broker) as client:
        found = values(client, "t")
        assert found[:10] == sent[:10]
        assert found == sent[: len(found)]


# -- silence ------------------------------------------------------------------------------------------------


def test_lost_requests_and_replies_are_made_good(
    meddler: Meddler, impatient: Client, client: Client, topic: str, rng: random.Random
) -> None:
    impatient._timing.resend = 0.05

    def lose(call: Call, answer: Answer | None = None) -> bool:
        return publishes(call) and rng.random() < 0.1

    meddler.on_request = meddler.on_reply = lose
    sent = numbered(500)
    with impatient.producer(topic, batch=10) as producer:
        send_all(producer, sent)
    assert values(client, topic) == sent


@pytest.mark.parametrize("in_flight", [IN_FLIGHT_MAX, 0])
def test_broker_that_stays_away_leaves_what_was_sent_unknown_and_refuses_the_rest(
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


def test_copies_do_not_pile_up_while_no_broker_is_there(
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


# -- a program that ends ------------------------------------------------------------------------------------


def send_and_interrupt(client: Client, topic: str) -> None:
    """A program that is ended by Ctrl-C while its producer is open."""
    with client.producer(topic, linger=60) as producer:
        producer.send(b"a")
        raise KeyboardInterrupt


def test_interrupt_is_not_held_up_by_a_broker_that_is_away(
    own_broker: BrokerProcess, own_client: Client
) -> None:
    """The program ends although the two minutes have not passed that a delivery may take."""
    before = threading.active_count()
    own_broker.kill()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        send_and_interrupt(own_client, "t")
    assert time.monotonic() - began < DEADLINE_S
    assert threading.active_count() <= before


def test_interrupt_lets_what_was_sent_arrive(client: Client, topic: str) -> None:
    client._timing.interrupted = DEADLINE_S  # enough on a slow machine, too
    with pytest.raises(KeyboardInterrupt):
        send_and_interrupt(client, topic)
    assert values(client, topic) == [b"a"]


# -- topics that go -----------------------------------------------------------------------------------------


def test_topic_that_is_deleted_is_made_anew_and_goes_on_in_order(client: Client, topic: str) -> None:
    """Records acknowledged before are gone with it; later ones are there, once and in order."""
    sent = numbered(20_000)
    with client.producer(topic, batch=20) as producer:
        for number, value in enumerate(sent):
            producer.send(value)
            if number and number % 4_000 == 0:
                eventually(lambda: topic in client.topics(), "it is there again")
                client.delete_topic(topic)
        producer.flush()
        acknowledged = producer.acknowledged
    assert acknowledged == len(sent)
    found = values(client, topic)
    assert found
    assert found == sent[-len(found) :]


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
        eventually(lambda: producer._buffered < rng.randint(1, 400), "some of it is on its way")
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
