"""Pending fetches, which end with the next record or at their deadline, and announcements."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, SimplePeer, Subscriber, found_in, refused
from kit.client.clients import Client, Connect, read_all
from kit.deadlines import eventually, hold
from kit.machine.processes import descriptors, needs_proc, threads
from kit.scale import times
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import announcement
from quothwire.protocol.messages import CreateTopic, ListTopics, RollTopic, TrimTopic


def waiting(fast: FastPeer, count: int) -> None:
    """Wait until so many fetches are pending."""
    eventually(lambda: fast.status(limit=0).waits == count, f"{count} fetches are pending")


def test_a_reader_at_the_end_gets_each_new_record_once(client: Client, topic: str) -> None:
    after = 0
    client.publish(topic, b"0")
    for i in range(1, 50):
        after, records = client.read(topic, after)
        assert [value for _, value in records] == [b"%d" % (i - 1)]
        assert client.read(topic, after) == (after, [])
        client.publish(topic, b"%d" % i)


def test_a_pending_fetch_is_answered_by_the_next_publish(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Long before its deadline."""
    reader = peers.fast(broker)
    after = fast.publish(topic, [b"0"]).last
    for i in range(1, 20):
        asked = reader.send_fetch(topic, after, wait_ms=60_000)
        waiting(fast, 1)
        fast.publish(topic, [b"%d" % i])
        found = found_in(reader.answer_to(asked), after)
        assert found.values == [b"%d" % i]
        after = found.reply.next
    assert fast.status(limit=0).waits == 0


@pytest.mark.parametrize("wait_ms", [0, 1, 50, 200])
def test_a_pending_fetch_ends_at_its_deadline(client: Client, topic: str, wait_ms: int) -> None:
    """Without records and without an error."""
    _, last = client.publish(topic, b"x")
    began = time.monotonic()
    assert client.read(topic, last, wait_ms=wait_ms) == (last, [])
    took = time.monotonic() - began
    assert wait_ms / 1_000 <= took < wait_ms / 1_000 + 5


def test_a_fetch_from_a_topic_that_does_not_exist_is_answered_by_its_first_publish(
    start_broker: StartBroker, connect_client: Connect, peers: Peers
) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    early = fast.send_fetch("t", 0, wait_ms=60_000)
    waiting(fast, 1)
    assert fast.call(ListTopics()).names == []
    client = connect_client(broker)
    first, _ = client.publish("t", b"first")
    found = found_in(fast.answer_to(early))
    assert [(one.pointer, one.value) for one in found.records] == [(first, b"first")]


def test_a_pending_fetch_creates_no_topic(fast: FastPeer, simple: SimplePeer, topic: str) -> None:
    """The fetch ends with `unknown_topic` at its deadline."""
    with refused("unknown_topic"):
        fast.fetch(topic, 0, wait_ms=50)
    with refused("unknown_topic"):
        simple.read(topic, wait_ms=50)
    assert topic not in simple.topics()


def test_a_pending_fetch_outlasts_the_creation_of_its_topic(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """The first record answers it, and one that comes after the creation."""
    reader = peers.fast(broker)
    early = reader.send_fetch(topic, 0, wait_ms=60_000)
    waiting(fast, 1)
    fast.call(CreateTopic(), topic)
    later = reader.send_fetch(topic, 0, wait_ms=60_000)
    waiting(fast, 2)
    fast.publish(topic, [b"x"])
    for asked in (early, later):
        assert found_in(reader.answer_to(asked)).values == [b"x"]


def test_a_record_below_the_cursor_does_not_answer_a_pending_fetch(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    reader = peers.fast(broker)
    last = fast.publish(topic, [b"x"]).last
    asked = reader.send_fetch(topic, POINTER_MAX, wait_ms=300)
    fast.publish(topic, [b"y"])
    assert not found_in(reader.answer_to(asked), POINTER_MAX).records
    assert fast.fetch(topic, last).values == [b"y"]


@pytest.mark.parametrize("wait_ms", [100, 60_000])
def test_a_fetch_behind_removed_records_waits_for_the_next_record(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str, wait_ms: int
) -> None:
    """The fetch waits like one at the end."""
    reader = peers.fast(broker)
    last = fast.publish(topic, [b"x"] * 10).last
    assert fast.call(TrimTopic(before=last + 1), topic).records == 10
    asked = reader.send_fetch(topic, 0, wait_ms=wait_ms)
    if wait_ms < 1_000:
        assert found_in(reader.answer_to(asked)).records == []
        return
    waiting(fast, 1)
    hold(lambda: fast.status(limit=0).waits == 1, "it is pending", 0.2)
    fast.publish(topic, [b"y"])
    found = found_in(reader.answer_to(asked))
    assert (found.values, found.reply.gone) == ([b"y"], 10)


def test_a_roll_does_not_answer_a_pending_fetch(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    reader = peers.fast(broker)
    last = fast.publish(topic, [b"x"]).last
    asked = reader.send_fetch(topic, last, wait_ms=60_000)
    waiting(fast, 1)
    assert fast.call(RollTopic(), topic).segments == 2
    assert fast.status(limit=0).waits == 1
    fast.publish(topic, [b"y"])
    assert found_in(reader.answer_to(asked)).values == [b"y"]


@needs_proc
def test_many_pending_fetches_cost_no_thread_and_open_no_topic(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Ten thousand on hibernating topics: publishes answer some of them, the deadline others."""
    count = times(10_000, 100_000)
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    lasts = [fast.publish(f"t{i}", [b"x"]).last for i in range(10)]
    eventually(lambda: fast.status(limit=0).active == 0, "all topics hibernate")
    before = descriptors(broker.pid), threads(broker.pid)
    reader = peers.fast(broker)
    asked = [reader.send_fetch(f"t{i % 10}", lasts[i % 10], wait_ms=600_000) for i in range(count)]
    waiting(fast, count)
    assert fast.status(limit=0).active == 0
    eventually(lambda: descriptors(broker.pid) <= before[0] + 1, "no more than the reader's connection")
    eventually(lambda: threads(broker.pid) <= before[1], "no thread is left")
    fast.publish("t3", [b"news"])
    for answer in reader.answers_to(asked[3::10]):
        assert found_in(answer, lasts[3]).values == [b"news"]
    assert fast.status(limit=0).waits == count - count // 10
    short = [reader.send_fetch("t5", lasts[5], wait_ms=200) for _ in range(count // 10)]
    found = Counter(len(found_in(answer).records) for answer in reader.answers_to(short))
    assert found == {0: count // 10}
    left = [one for row, one in enumerate(asked) if row % 10 != 3]
    for row in range(10):
        fast.publish(f"t{row}", [b"more"])
    for i, answer in enumerate(reader.answers_to(left, 60)):
        assert found_in(answer).records, i
    assert fast.status(limit=0).waits == 0


def test_a_publish_answers_all_pending_fetches_of_its_topic(start_broker: StartBroker, peers: Peers) -> None:
    """Also when they are many more than the requests that a topic takes at once."""
    broker = start_broker(topic_requests_max=100, worker_timeout=0.05)
    fast, reader = peers.fast(broker), peers.fast(broker)
    last = fast.publish("t", [b"x"]).last
    eventually(lambda: fast.status(limit=0).active == 0, "the topic hibernates")
    asked = [reader.send_fetch("t", last, wait_ms=60_000) for _ in range(3_000)]
    waiting(fast, 3_000)
    fast.publish("t", [b"y"])
    for answer in reader.answers_to(asked):
        assert found_in(answer, last).values == [b"y"]


def test_one_pending_fetch_too_many_is_busy(start_broker: StartBroker, peers: Peers) -> None:
    """The others stay pending."""
    broker = start_broker(waits_max=5)
    fast, reader = peers.fast(broker), peers.fast(broker)
    last = fast.publish("t", [b"x"]).last
    asked = [reader.send_fetch("t", last, wait_ms=60_000) for _ in range(5)]
    waiting(fast, 5)
    for topic in ("t", "unknown"):
        with refused("busy"):
            fast.fetch(topic, last, wait_ms=60_000)
    assert fast.fetch("t", 0).values == [b"x"]
    fast.publish("t", [b"y"])
    for answer in reader.answers_to(asked):
        assert found_in(answer, last).values == [b"y"]


def test_pending_fetches_of_a_reader_that_left_end_with_the_next_publish(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Other clients do not notice it."""
    last = fast.publish(topic, [b"x"]).last
    reader = peers.fast(broker)
    for _ in range(10):
        reader.send_fetch(topic, last, wait_ms=60_000)
    waiting(fast, 10)
    reader.close()
    fast.publish(topic, [b"y"])
    waiting(fast, 0)
    assert fast.fetch(topic, last).values == [b"y"]


def test_requests_overtake_a_pending_fetch(fast: FastPeer, topic: str) -> None:
    """On one connection; each answer has the id of its request."""
    last = fast.publish(topic, [b"x"]).last
    slow = fast.send_fetch(topic, last, wait_ms=60_000)
    quick = fast.send_fetch(topic, 0)
    first = fast.receive()
    assert first.correlation == quick
    assert found_in(first).values == [b"x"]
    fast.publish(topic, [b"y"])
    assert found_in(fast.answer_to(slow), last).values == [b"y"]


# -- announcements --------------------------------------------------------------------------------------


def subscriber(peers: Peers, broker: BrokerProcess, *prefixes: bytes) -> Subscriber:
    """Return a subscriber, once it receives announcements."""
    fast = peers.fast(broker)
    listening = peers.keep(Subscriber(peers.context, broker.announcements, *prefixes, b"probe\0"))

    def hears() -> bool:
        fast.publish("probe", [b"x"])
        return not listening.is_silent(0.05)

    eventually(hears, "the subscription has arrived")
    fast.publish("probe", [b"last"])
    last = fast.fetch("probe", 0).reply.newest
    while listening.next() != ("probe", last):
        pass
    return listening


def test_a_publish_is_announced_to_subscribers_of_its_topic_alone(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """By its name, a zero byte and the newest pointer; a longer name is another topic."""
    listening = subscriber(peers, broker, announcement.subscription(topic))
    fast.publish(topic + "-longer", [b"no"])
    fast.publish(topic[:-1], [b"no"])
    last = fast.publish(topic, [b"1", b"2"]).last
    assert listening.receive_frames() == [topic.encode() + b"\0" + b"%d" % last]
    assert listening.is_silent(0.1)


def test_announcements_have_rising_pointers_and_end_with_the_newest(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """At most as many are sent as there are publishes."""
    listening = subscriber(peers, broker, announcement.subscription(topic))
    asked = [fast.send_publish(topic, [b"%d" % i]) for i in range(500)]
    last = max(answer.reply.last for answer in fast.answers_to(asked))  # type: ignore[union-attr]
    heard = [0]
    while heard[-1] != last:
        name, pointer = listening.next()
        assert name == topic
        assert pointer > heard[-1]
        heard.append(pointer)
    assert len(heard) - 1 <= 500
    assert listening.is_silent(0.1)


def test_an_announced_record_can_be_read(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Readers need no announcements to read all others."""
    listening = subscriber(peers, broker, announcement.subscription(topic))
    for i in range(20):
        fast.publish(topic, [b"%d" % i])
    _, newest = listening.next()
    assert fast.fetch(topic, newest - 1).records[0].pointer == newest
    assert len(read_all(peers.simple(broker), topic)) == 20
