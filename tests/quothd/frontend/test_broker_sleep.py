"""Hibernation of topics without requests, which no client notices, and fetches that wait meanwhile."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, found_in, hibernate, refused, replied
from kit.client.clients import Client
from kit.deadlines import eventually, pause
from kit.machine.processes import descriptors, needs_proc, resident_bytes, threads
from kit.scale import times
from quothwire.protocol.messages import (
    ListTopics,
    Published,
    RollTopic,
    TrimTopic,
)


def is_down_to(broker: BrokerProcess, before: tuple[int, int]) -> bool:
    """True if there are about as many descriptors and threads as before.

    A leak leaves dozens here. A few more are a thread that is about to end, or a stranger at the port.
    """
    return descriptors(broker.pid) <= before[0] + 3 and threads(broker.pid) <= before[1] + 1


def test_each_segment_has_the_letter_of_its_state(start_broker: StartBroker, peers: Peers) -> None:
    """`w` is written, `r` is open for reading, `h` hibernates."""
    broker = start_broker(worker_timeout=60, recovering_after=60)
    fast = peers.fast(broker)
    fast.publish("t", [b"1"])
    assert fast.describe("t").states == "w"
    assert fast.call(RollTopic(), "t").states == "hw"
    fast.publish("t", [b"2"])
    assert fast.fetch("t", 0).values == [b"1"]
    assert fast.describe("t").states == "rw"
    assert broker.terminate() == 0
    broker.restart(worker_timeout=0.3)
    assert fast.fetch("t", 0).values == [b"1"]
    eventually(lambda: fast.describe("t").states == "hh", "the topic hibernates in spite of the descriptions")


def test_the_first_request_opens_a_hibernating_topic(start_broker: StartBroker, peers: Peers) -> None:
    """Status, description and list do not."""
    fast = peers.fast(start_broker(worker_timeout=0.05))
    first = fast.publish("t", [b"1"]).first
    hibernate(fast)
    for _ in range(20):
        info = fast.describe("t")
        assert (info.first, info.count, info.states) == (first, 1, "h")
        assert fast.status().states == {"t": "h"}
        assert fast.call(ListTopics()).names == ["t"]
        assert fast.status().active == 0
    fast.publish("t", [b"x"])
    hibernate(fast)
    assert fast.values("t") == [b"1", b"x"]


@needs_proc
def test_a_hibernating_topic_leaves_no_descriptor_thread_or_memory(
    start_broker: StartBroker, peers: Peers
) -> None:
    """After requests that find nothing as well."""
    broker = start_broker(worker_timeout=0.01)
    fast = peers.fast(broker)

    def cycle() -> None:
        last = fast.publish("t", [bytes(100)]).last
        fast.call(RollTopic(), "t")
        fast.fetch("t", 0)
        fast.fetch("t", last)
        with refused("unknown_topic"):
            fast.fetch("no such topic")
        hibernate(fast)
        fast.call(TrimTopic(before=last), "t")
        hibernate(fast)

    for _ in range(times(5, 400)):
        cycle()
    before = descriptors(broker.pid), threads(broker.pid)
    memory = resident_bytes(broker.pid)
    for _ in range(times(20, 4_000)):
        cycle()
    eventually(lambda: is_down_to(broker, before), "all files are closed and all threads have ended")
    assert resident_bytes(broker.pid) - memory < times(8, 3) * 2**20  # a new thread may take a MiB, once


def test_requests_at_the_time_of_hibernation_are_served(
    start_broker: StartBroker, peers: Peers, rng: random.Random
) -> None:
    """Of several clients, at random times around it."""
    broker = start_broker(worker_timeout=0.01, check_interval=0.01, recovering_after=60)
    clients = [peers.fast(broker) for _ in range(3)]
    pointers = [clients[0].publish("t", [b"a topic to read"]).first]
    sent: list[tuple[FastPeer, int]] = []
    count = 1
    for _ in range(times(80, 3_000)):
        for client in clients:
            for _ in range(rng.randrange(3)):
                sent.append((client, client.send_publish("t", [b"%d" % count])))
                count += 1
            if rng.random() < 0.2:
                sent.append((client, client.send_fetch("t", 0)))
        pause(rng.choice((0.0, 0.005, 0.009, 0.010, 0.011, 0.013)))
    for client, asked in sent:
        reply = replied(client.answer_to(asked))
        if isinstance(reply, Published):
            pointers.append(reply.first)
    assert len(set(pointers)) == count
    assert sorted(pointers) == [record.pointer for record in clients[0].read_all("t")]


@needs_proc
@pytest.mark.timeout(times(120, 3_600))
def test_many_hibernating_topics_cost_no_thread_and_no_descriptor(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Nor after a restart, which opens each of them once in the background."""
    topics = times(100, 10_000)
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    fast.publish("first", [b"x"])
    hibernate(fast)
    before = descriptors(broker.pid), threads(broker.pid)
    for answer in fast.answers_to([fast.send_publish(f"t{i}", [b"%d" % i]) for i in range(topics)], 150):
        replied(answer)
    hibernate(fast)
    eventually(lambda: is_down_to(broker, before), "all files are closed and all threads have ended")
    assert broker.terminate() == 0
    broker.restart()
    eventually(lambda: fast.status(0).counters["unopened"] == 0, "every topic has been opened once", 150)
    hibernate(fast)
    eventually(lambda: is_down_to(broker, before), "all files are closed and all threads have ended")
    assert fast.fetch(f"t{topics - 1}").values == [b"%d" % (topics - 1)]


# -- pending fetches ----------------------------------------------------------------------------------------


def waiting(fast: FastPeer, count: int) -> None:
    eventually(lambda: fast.status(limit=0).waits == count, f"{count} fetches are pending")


def test_a_pending_fetch_ends_at_its_deadline(client: Client, topic: str) -> None:
    """Without records and without an error."""
    _, last = client.publish(topic, b"x")
    for wait_ms in (0, 1, 100):
        began = time.monotonic()
        assert client.read(topic, last, wait_ms=wait_ms) == (last, [])
        took = time.monotonic() - began
        assert wait_ms / 1_000 <= took < wait_ms / 1_000 + 5


@needs_proc
def test_many_pending_fetches_cost_no_thread_and_open_no_topic(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Thousands on hibernating topics: publishes answer some of them, the deadline others."""
    count = times(2_000, 100_000)
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    lasts = [fast.publish(f"t{i}", [b"x"]).last for i in range(10)]
    hibernate(fast)
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
