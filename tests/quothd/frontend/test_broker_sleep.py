"""Topics fall asleep when nobody asks for them, and nobody who asks notices it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, refused, replied
from kit.deadlines import eventually, hold, pause
from kit.machine.processes import descriptors, needs_proc, resident_bytes, threads
from kit.scale import times
from quothwire.protocol.messages import (
    Fetched,
    ListTopics,
    Published,
    RollTopic,
    TopicInfo,
    TrimTopic,
    UpdateTopic,
)


def fall_asleep(fast: FastPeer) -> None:
    """Wait until no topic is active."""
    eventually(lambda: fast.status(limit=0).active == 0, "all topics sleep")


def is_down_to(broker: BrokerProcess, before: tuple[int, int]) -> bool:
    """Are there no more descriptors and threads than before? What leaks does so dozens of times here; what is
    one too many is a thread that is about to end, or a stranger at the port."""
    return descriptors(broker.pid) <= before[0] + 3 and threads(broker.pid) <= before[1] + 1


def test_the_letters_tell_the_state_of_each_segment(start_broker: StartBroker, peers: Peers) -> None:
    """W is written, r is open for reading, h hibernates."""
    broker = start_broker(worker_timeout=60)
    fast = peers.fast(broker)
    fast.publish("t", [b"1"])
    assert fast.describe("t").states == "w"
    assert fast.call(RollTopic(), "t").states == "hw"
    fast.publish("t", [b"2"])
    assert fast.fetch("t", 0).values == [b"1"]
    assert fast.describe("t").states == "rw"
    assert broker.terminate() == 0
    broker.restart(worker_timeout=0.05)
    assert fast.fetch("t", 0).values == [b"1"]
    eventually(lambda: fast.status().states == {"t": "hh"}, "the topic sleeps")
    assert fast.describe("t").states == "hh"


def test_a_sleeping_topic_is_described_without_waking_it(start_broker: StartBroker, peers: Peers) -> None:
    """By status, by describe, by a listing."""
    fast = peers.fast(start_broker(worker_timeout=0.05))
    first = fast.publish("t", [b"1", b"22"])
    fall_asleep(fast)
    for _ in range(20):
        info = fast.describe("t")
        assert (info.first, info.last, info.count, info.states) == (first.first, first.last, 2, "h")
        assert fast.status().states == {"t": "h"}
        assert fast.call(ListTopics()).names == ["t"]
        assert fast.status().active == 0


@pytest.mark.parametrize("ask", [lambda fast: fast.describe("t"), lambda fast: fast.status()])
def test_asking_for_the_state_does_not_keep_a_topic_awake(
    start_broker: StartBroker, peers: Peers, ask: Callable[[FastPeer], object]
) -> None:
    """The idle timer runs on while somebody watches."""
    fast = peers.fast(start_broker(worker_timeout=0.3))
    fast.publish("t", [b"1"])

    def sleeps() -> bool:
        ask(fast)
        return fast.status().active == 0

    eventually(sleeps, "the topic sleeps though it is watched")


def test_asking_for_a_topic_does_not_make_it(fast: FastPeer, topic: str) -> None:
    """Only publishing and creating do."""
    for ask in (
        lambda: fast.describe(topic),
        lambda: fast.fetch(topic),
        lambda: fast.call(RollTopic(), topic),
        lambda: fast.call(TrimTopic(1), topic),
        lambda: fast.call(UpdateTopic({"max_age": 1.0}), topic),
    ):
        with refused("unknown_topic"):
            ask()
    assert topic not in fast.call(ListTopics()).names
    assert topic not in fast.status().states


@pytest.mark.parametrize(
    "ask",
    [
        lambda fast: fast.publish("t", [b"x"]),
        lambda fast: fast.fetch("t", 0),
        lambda fast: fast.call(RollTopic(), "t"),
        lambda fast: fast.call(TrimTopic(before=1), "t"),
        lambda fast: fast.call(UpdateTopic({"max_age": 100.0}), "t"),
    ],
    ids=["publish", "fetch", "roll", "trim", "update"],
)
def test_a_sleeping_topic_is_woken_by_the_first_request(
    start_broker: StartBroker, peers: Peers, ask: Callable[[FastPeer], object]
) -> None:
    fast = peers.fast(start_broker(worker_timeout=0.05))
    first = fast.publish("t", [b"1"]).first
    fall_asleep(fast)
    ask(fast)
    assert fast.fetch("t", 0).records[0].pointer == first


def test_a_reader_at_the_end_does_not_wake_a_topic(start_broker: StartBroker, peers: Peers) -> None:
    """Whether it waits or not, there is nothing to wake it for."""
    fast = peers.fast(start_broker(worker_timeout=0.05))
    last = fast.publish("t", [b"1"]).last
    fall_asleep(fast)
    assert fast.fetch("t", last).records == []
    waiting = fast.send_fetch("t", last, wait_ms=10_000)
    eventually(lambda: fast.status().waits == 1, "the fetch waits")
    assert fast.status().active == 0
    fast.publish("t", [b"2"])
    assert isinstance(replied(fast.answer_to(waiting)), Fetched)


@needs_proc
def test_waking_and_sleeping_leaves_nothing_behind(start_broker: StartBroker, peers: Peers) -> None:
    """No descriptor, no thread, no memory, on the paths that find nothing as well."""
    broker = start_broker(worker_timeout=0.01)
    fast = peers.fast(broker)

    def cycle() -> None:
        last = fast.publish("t", [bytes(100)]).last
        fast.call(RollTopic(), "t")
        fast.fetch("t", 0)
        fast.fetch("t", last)
        with refused("unknown_topic"):
            fast.fetch("no such topic")
        fall_asleep(fast)
        fast.call(TrimTopic(before=last), "t")
        fall_asleep(fast)

    for _ in range(times(20, 400)):
        cycle()
    before = descriptors(broker.pid), threads(broker.pid)
    memory = resident_bytes(broker.pid)
    for _ in range(times(40, 4_000)):
        cycle()
    eventually(lambda: is_down_to(broker, before), "all is closed and ended")
    assert resident_bytes(broker.pid) - memory < times(8, 3) * 2**20  # a new thread may take a MiB, once


def test_a_request_that_meets_the_falling_asleep_is_served(
    start_broker: StartBroker, peers: Peers, rng: random.Random
) -> None:
    """Hammered around the very moment, by several clients."""
    broker = start_broker(worker_timeout=0.01, check_interval=0.01)
    clients = [peers.fast(broker) for _ in range(3)]
    pointers = [clients[0].publish("t", [b"a topic to read"]).first]
    sent: list[tuple[FastPeer, int]] = []
    count = 1
    for _ in range(times(200, 3_000)):
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


def test_few_workers_serve_many_topics(start_broker: StartBroker, peers: Peers) -> None:
    """Ten busy topics on two workers, each request answered and never more than two awake."""
    broker = start_broker(workers_max=2)
    fast, watcher = peers.fast(broker), peers.fast(broker)
    sent: dict[str, list[int]] = {}
    for i in range(times(60, 600)):
        for row in range(10):
            sent.setdefault(f"t{row}", []).append(fast.send_publish(f"t{row}", [b"%d" % i]))
        assert watcher.status(limit=0).active <= 2
    for topic, asked in sent.items():
        for answer in fast.answers_to(asked):
            replied(answer)
        values = fast.values(topic)
        assert values == [b"%d" % i for i in range(len(asked))]
    assert watcher.status(limit=0).active <= 2


def test_a_topic_that_is_always_busy_makes_way(start_broker: StartBroker, peers: Peers) -> None:
    """Its requests never run out, and still the other topics get their turn on the only worker."""
    broker = start_broker(workers_max=1)
    busy, other = peers.fast(broker), peers.fast(broker)
    sent = [busy.send_publish("busy", [b"x"]) for _ in range(50)]
    answered = 0
    asked = [other.send_publish(f"t{row}", [b"y"]) for row in range(5)]
    missing = set(asked)
    while missing:
        replied(busy.answer_to(sent.pop(0)))
        answered += 1
        sent.append(busy.send_publish("busy", [b"x"]))
        assert answered < 50_000, f"{len(missing)} requests of other topics are starved"
        while not other.is_silent(0):
            answer = other.receive()
            replied(answer)
            missing.discard(answer.correlation)
    for one in sent:
        replied(busy.answer_to(one))
    assert len(busy.read_all("busy")) == answered + len(sent)


@needs_proc
@pytest.mark.timeout(times(360, 3_600))
def test_a_thousand_sleeping_topics_cost_no_thread_and_no_descriptor(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Nor do they after a restart, where each of them is opened once in the background."""
    topics = times(1_000, 10_000)
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    fast.publish("first", [b"x"])
    fall_asleep(fast)
    before = descriptors(broker.pid), threads(broker.pid)
    for answer in fast.answers_to([fast.send_publish(f"t{i}", [b"%d" % i]) for i in range(topics)], 150):
        replied(answer)
    fall_asleep(fast)
    eventually(lambda: is_down_to(broker, before), "all is closed and ended")
    assert broker.terminate() == 0
    broker.restart()
    eventually(lambda: fast.status(0).counters["unopened"] == 0, "every topic has been opened once", 150)
    fall_asleep(fast)
    eventually(lambda: is_down_to(broker, before), "all is closed and ended")
    assert fast.fetch(f"t{topics - 1}").values == [b"%d" % (topics - 1)]


def test_a_description_after_a_restart_is_complete(start_broker: StartBroker, peers: Peers) -> None:
    """The first question may have to open the topic; it goes back to sleep by itself."""
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    last = fast.publish("t", [b"1", b"2"]).last
    assert broker.terminate() == 0
    broker.restart()
    info = fast.describe("t")
    assert isinstance(info, TopicInfo)
    assert (info.last, info.count) == (last, 2)
    fall_asleep(fast)
    hold(lambda: fast.status().active == 0 and fast.describe("t").count == 2, "it sleeps on", 0.3)


def test_other_topics_are_not_held_up_by_a_roll(fast: FastPeer, peers: Peers, broker: BrokerProcess) -> None:
    """Rolling one topic again and again leaves the latency of another as it was."""
    other = peers.fast(broker)
    fast.publish("rolled", [bytes(1_000)])
    rolls = []
    for _ in range(times(100, 500)):
        fast.send_publish("rolled", [b"x"])
        rolls.append(fast.send(RollTopic(), "rolled"))
    took = []
    for _ in range(100):
        began = time.monotonic()
        other.publish("steady", [b"x"])
        took.append(time.monotonic() - began)
    assert median(took) < 0.25
    for answer in fast.answers_to(rolls):
        replied(answer)
