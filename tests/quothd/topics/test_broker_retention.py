"""Retention by age and by size, of open and hibernating topics, removes old segments and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, hibernates
from kit.deadlines import eventually, hold
from quothwire.protocol.messages import CreateTopic, Ping, RollTopic, UpdateTopic

SETTINGS = {"worker_timeout": 0.05, "check_interval": 0.02}


def segment_files(broker: BrokerProcess, topic: str) -> list[Path]:
    """All segments of a topic, or of topics whose names begin with this."""
    return sorted(broker.topics_directory.glob(f"{topic}*/*.seg"))


def content(path: Path) -> bytes:
    """The bytes of a file; none if it was removed after it had been listed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def holds(fast: FastPeer, topic: str, count: int) -> Callable[[], bool]:
    """Compares the number of records of a topic."""
    return lambda: fast.describe(topic).count == count


def test_old_records_of_a_hibernating_topic_are_removed(
    fast: FastPeer, broker: BrokerProcess, topic: str
) -> None:
    """The active segment, too. A reader learns how many records are gone."""
    fast.call(CreateTopic({"max_age": 0.5}), topic)
    newest = fast.publish(topic, [b"old"] * 3).last
    eventually(lambda: hibernates(fast), "it hibernates")
    eventually(holds(fast, topic, 0), "the records are gone")
    info = fast.describe(topic)
    assert (info.first, info.last, info.first_ordinal) == (0, newest, 3)
    assert len(segment_files(broker, topic)) == 1
    fast.call(UpdateTopic({"max_age": 0}), topic)
    assert fast.publish(topic, [b"new"]).first > newest
    assert fast.fetch(topic, 0).values == [b"new"]
    assert fast.fetch(topic, 0, ordinal=0).reply.gone == 3
    assert fast.fetch(topic, newest, ordinal=3).reply.gone == 0


def test_young_records_stay(fast: FastPeer, topic: str) -> None:
    """A segment is removed when its newest record is too old. It spans at most a quarter of the age."""
    fast.call(CreateTopic({"max_age": 1.2}), topic)
    pointers: list[int] = []

    def first_is_gone() -> bool:
        pointers.append(fast.publish(topic, [b"x"]).first)
        return fast.describe(topic).first > pointers[0]

    eventually(first_is_gone, "the first records are gone")
    fast.call(UpdateTopic({"max_age": 0}), topic)
    records = [record.pointer for record in fast.read_all(topic)]
    assert records == pointers[len(pointers) - len(records) :], "something in the middle is missing"
    now = fast.call(Ping()).time
    young = [pointer for pointer in pointers if pointer > now - 1_100_000]
    assert set(young) <= set(records)


def test_records_stay_for_ever_by_default(fast: FastPeer, topic: str) -> None:
    for i in range(5):
        fast.publish(topic, [b"%d" % i])
        fast.call(RollTopic(), topic)
    hold(holds(fast, topic, 5), "five records are there", 0.5)


def test_old_records_are_removed_after_a_restart_while_others_are_busy(
    fast: FastPeer, broker: BrokerProcess, topic: str
) -> None:
    """No request names these topics after the start."""
    for row in range(5):
        fast.call(CreateTopic({"max_age": 0.5}), f"{topic}{row}")
        fast.publish(f"{topic}{row}", [b"x" * 1_000])
    fast.publish("busy", [b"x"])
    assert broker.terminate() == 0
    broker.restart()

    def are_gone() -> bool:
        fast.publish("busy", [b"x"])
        return not any(b"x" * 1_000 in content(path) for path in segment_files(broker, topic))

    eventually(are_gone, "the old records are gone from the disk")


def test_a_topic_is_limited_to_its_size(fast: FastPeer, broker: BrokerProcess, topic: str) -> None:
    """The oldest segments are removed, and no more than has to be."""
    fast.call(CreateTopic({"max_bytes": 40_000}), topic)
    values = [b"%06d" % i + bytes(1_000) for i in range(200)]
    for value in values:
        fast.publish(topic, [value])
    eventually(lambda: fast.describe(topic).bytes <= 40_000, "the topic is small enough")
    found = [record.value for record in fast.read_all(topic)]
    assert found == values[-len(found) :]
    assert len(found) >= 25, "more was removed than had to be"
    assert sum(path.stat().st_size for path in segment_files(broker, topic)) <= 40_000


def test_an_update_of_the_size_removes_segments_at_once(start_broker: StartBroker, peers: Peers) -> None:
    """The reply has what is left."""
    fast = peers.fast(start_broker())
    fast.call(CreateTopic({"count_limit": 10}), "t")
    for i in range(50):
        fast.publish("t", [b"%d" % i + bytes(1_000)])
    info = fast.call(UpdateTopic({"max_bytes": 30_000}), "t")
    assert info.bytes <= 30_000
    assert info.count == len(fast.read_all("t")) < 50


def test_a_segment_is_sealed_by_age(fast: FastPeer, topic: str) -> None:
    """In a hibernating topic, too. An empty segment is not, and no record is removed."""
    fast.call(CreateTopic({"age_limit": 0.3}), topic)
    fast.publish(topic, [b"x"])
    eventually(lambda: fast.describe(topic).segments == 2, "the segment is sealed")
    hold(lambda: fast.describe(topic).segments == 2, "the empty one is not sealed", 0.5)
    assert fast.fetch(topic, 0).values == [b"x"]


def test_the_age_of_the_broker_holds_for_topics_without_one(start_broker: StartBroker, peers: Peers) -> None:
    fast = peers.fast(start_broker(max_age=0.5, **SETTINGS))
    fast.call(CreateTopic({"max_age": 0}), "kept")
    fast.publish("kept", [b"x"])
    fast.publish("lost", [b"x"])
    eventually(holds(fast, "lost", 0), "the records are gone")
    assert fast.describe("kept").count == 1
