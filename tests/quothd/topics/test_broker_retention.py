"""What is kept: by age and by size, awake or asleep, and never anything that was not due."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.deadlines import eventually, hold
from quothwire.protocol.messages import CreateTopic, Ping, RollTopic, UpdateTopic


def asleep(fast: FastPeer) -> bool:
    """Does every topic hibernate?"""
    return fast.status(limit=0).active == 0


def segment_files(broker: BrokerProcess) -> list[Path]:
    """All segments of all topics."""
    return sorted(broker.topics_directory.rglob("*.seg"))


def bytes_of(path: Path) -> bytes:
    """What is in a file; nothing if it was removed after it had been listed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def holds(fast: FastPeer, topic: str, count: int) -> Callable[[], bool]:
    """Tells whether a topic holds as many records."""
    return lambda: fast.describe(topic).count == count


def test_old_records_go(start_broker: StartBroker, peers: Peers) -> None:
    """The active segment too, though nobody asks for the topic and it sleeps."""
    broker = start_broker(worker_timeout=0.05, check_interval=0.05)
    fast = peers.fast(broker)
    fast.call(CreateTopic({"max_age": 0.5}), "t")
    newest = fast.publish("t", [b"old"] * 3).last
    eventually(lambda: asleep(fast), "the topic sleeps")
    eventually(holds(fast, "t", 0), "the records are gone")
    info = fast.describe("t")
    assert (info.first, info.last, info.first_ordinal) == (0, newest, 3)
    assert len(segment_files(broker)) == 1
    fast.call(UpdateTopic({"max_age": 0}), "t")
    assert fast.publish("t", [b"new"]).first > newest
    assert fast.fetch("t", 0).values == [b"new"]


def test_young_records_stay(start_broker: StartBroker, peers: Peers) -> None:
    """A segment goes only when its newest record is too old; it spans at most a quarter of the age."""
    broker = start_broker(worker_timeout=0.05, check_interval=0.02)
    fast = peers.fast(broker)
    fast.call(CreateTopic({"max_age": 1.2}), "t")
    pointers: list[int] = []

    def goes_on() -> bool:
        pointers.append(fast.publish("t", [b"x"]).first)
        return fast.describe("t").first > pointers[0]

    eventually(goes_on, "the first records are gone")
    fast.call(UpdateTopic({"max_age": 0}), "t")
    records = [record.pointer for record in fast.read_all("t")]
    assert records == pointers[len(pointers) - len(records) :], "something in the middle is missing"
    now = fast.call(Ping()).time
    young = [pointer for pointer in pointers if pointer > now - 1_100_000]
    assert set(young) <= set(records)


def test_records_stay_for_ever_by_default(start_broker: StartBroker, peers: Peers) -> None:
    """Nothing is removed that nobody asked to remove."""
    broker = start_broker(worker_timeout=0.05, check_interval=0.02)
    fast = peers.fast(broker)
    for i in range(5):
        fast.publish("t", [b"%d" % i])
        fast.call(RollTopic(), "t")
    hold(holds(fast, "t", 5), "five records are kept", 0.5)


def test_age_is_kept_over_a_restart_while_others_are_busy(start_broker: StartBroker, peers: Peers) -> None:
    """A topic that nobody has asked for since the start loses what is too old as well."""
    broker = start_broker(worker_timeout=0.05, check_interval=0.05)
    fast = peers.fast(broker)
    for row in range(5):
        fast.call(CreateTopic({"max_age": 0.5}), f"t{row}")
        fast.publish(f"t{row}", [b"x" * 1_000])
    fast.publish("busy", [b"x"])
    assert broker.terminate() == 0
    broker.restart()

    def only_one_left() -> bool:
        fast.publish("busy", [b"x"])
        return not any(b"x" * 1_000 in bytes_of(path) for path in segment_files(broker))

    eventually(only_one_left, "the old records are gone from the disk")


def test_size_is_kept(start_broker: StartBroker, peers: Peers) -> None:
    """The oldest segments go, what is left is the end of what was published."""
    broker = start_broker(check_interval=0.02)
    fast = peers.fast(broker)
    fast.call(CreateTopic({"max_bytes": 40_000}), "t")
    values = [b"%06d" % i + bytes(1_000) for i in range(200)]
    for value in values:
        fast.publish("t", [value])
    eventually(lambda: fast.describe("t").bytes <= 40_000, "the topic is small enough")
    found = [record.value for record in fast.read_all("t")]
    assert found == values[-len(found) :]
    assert len(found) >= 25, "more was removed than had to be"
    assert sum(path.stat().st_size for path in segment_files(broker)) <= 40_000


def test_an_update_removes_what_has_become_too_much(start_broker: StartBroker, peers: Peers) -> None:
    """At once, with the reply telling what is left."""
    fast = peers.fast(start_broker())
    fast.call(CreateTopic({"count_limit": 10}), "t")
    for i in range(50):
        fast.publish("t", [b"%d" % i + bytes(1_000)])
    info = fast.call(UpdateTopic({"max_bytes": 30_000}), "t")
    assert info.bytes <= 30_000
    assert info.count == len(fast.read_all("t")) < 50


def test_a_segment_is_sealed_by_age(start_broker: StartBroker, peers: Peers) -> None:
    """Also while the topic sleeps; nothing is removed by it."""
    fast = peers.fast(start_broker(worker_timeout=0.05, check_interval=0.02))
    fast.call(CreateTopic({"age_limit": 0.3}), "t")
    fast.publish("t", [b"x"])
    eventually(lambda: fast.describe("t").segments == 2, "the segment is sealed")
    hold(lambda: fast.describe("t").segments == 2, "the empty one is not sealed", 0.5)
    assert fast.fetch("t", 0).values == [b"x"]


def test_the_broker_sets_what_topics_do_not(start_broker: StartBroker, peers: Peers) -> None:
    """`max_age` of the broker for topics that publishing makes, another one for a created topic."""
    fast = peers.fast(start_broker(max_age=0.5, worker_timeout=0.05, check_interval=0.05))
    fast.call(CreateTopic({"max_age": 0}), "kept")
    fast.publish("kept", [b"x"])
    fast.publish("lost", [b"x"])
    eventually(holds(fast, "lost", 0), "the records are gone")
    assert fast.describe("kept").count == 1


def test_a_reader_below_the_oldest_record_is_told(start_broker: StartBroker, peers: Peers) -> None:
    """How many records retention took from him."""
    fast = peers.fast(start_broker(worker_timeout=0.05, check_interval=0.05))
    fast.call(CreateTopic({"max_age": 0.4}), "t")
    last = fast.publish("t", [b"x"] * 7).last
    eventually(holds(fast, "t", 0), "the records are gone")
    fast.call(UpdateTopic({"max_age": 0}), "t")
    fast.publish("t", [b"y"])
    assert fast.fetch("t", 0, ordinal=0).reply.gone == 7
    assert fast.fetch("t", last, ordinal=7).reply.gone == 0
