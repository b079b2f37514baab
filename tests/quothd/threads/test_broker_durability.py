"""The promises of an acknowledgement, and the syncs that keep them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, found_in, refused, replied
from kit.clocks import HookedClock
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.doubles import FaultyDisk, Kind
from quothd import Broker
from quothwire.protocol.messages import CreateTopic, Ping

Embed = Callable[..., Broker]


def test_a_publish_reaches_the_level_of_its_topic_or_a_higher_one(fast: FastPeer, topic: str) -> None:
    for of_topic in ("written", "synced"):
        name = f"{topic}-{of_topic}"
        fast.call(CreateTopic({"durability": of_topic}), name)
        for asked in ("", "written", "synced"):
            reached = "synced" if "synced" in (of_topic, asked) else "written"
            assert fast.publish(name, [b"x"], asked).durability == reached
    with refused("bad_request"):
        fast.publish(topic, [b"x"], "replicated")


def test_an_fsync_serves_many_publishes_of_a_pipeline(fast: FastPeer, topic: str) -> None:
    fast.call(CreateTopic({"durability": "synced"}), topic)
    before = fast.status(limit=0).counters["syncs"]
    for answer in fast.answers_to([fast.send_publish(topic, [b"x"]) for _ in range(500)]):
        assert replied(answer).durability == "synced"
    assert fast.status(limit=0).counters["syncs"] - before < 250


def test_a_written_record_is_synced_once_within_the_interval(start_broker: StartBroker, peers: Peers) -> None:
    fast = peers.fast(start_broker(sync_interval=0.05, worker_timeout=60))
    fast.publish("t", [b"x"])
    eventually(lambda: fast.status(limit=0).counters["syncs"] == 1, "it has been synced")
    pause(0.3)
    assert fast.status(limit=0).counters["syncs"] == 1


def test_readers_of_a_synced_topic_see_a_record_after_its_fsync(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """Neither a fetch nor a pending one returns it before, and the acknowledgement comes after it."""
    broker = embed(durability="synced", worker_timeout=60.0)
    fast, reader = peers.fast(broker), peers.fast(broker)
    last = fast.publish("t", [b"before"]).last
    disk.stall("t~", "sync")
    asked = fast.send_publish("t", [b"x"])
    pending = reader.send_fetch("t", last, wait_ms=60_000)
    assert disk.has_stalled.wait(DEADLINE_S)
    assert reader.fetch("t", last).records == []
    assert reader.fetch("t", last).reply.newest == last
    assert fast.is_silent(0.1)
    disk.heal()
    reply = replied(fast.answer_to(asked))
    assert (reply.durability, reply.first) == ("synced", found_in(reader.answer_to(pending)).reply.next)
    assert fast.values("t") == [b"before", b"x"]


def test_a_synced_publish_to_a_written_topic_delays_its_acknowledgement_alone(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """Readers see the record at once, other writers do not wait, and no thread computes meanwhile."""
    clock = HookedClock()
    looks: list[str] = []
    fast = peers.fast(embed(worker_timeout=0.2, check_interval=0.1, clock=clock))
    last = fast.publish("t", [b"before"], "synced").last
    disk.stall("t~", "sync")
    asked = fast.send_publish("t", [b"x"], "synced")
    assert disk.has_stalled.wait(DEADLINE_S)
    assert fast.publish("t", [b"y"]).durability == "written"
    assert fast.fetch("t", last).values == [b"x", b"y"]
    pause(0.3)
    clock.hook = looks.append
    pause(0.3)
    assert fast.is_silent(0)
    assert len(looks) < 300, "a thread that never sleeps looks at the clock many thousand times"
    disk.heal()
    assert replied(fast.answer_to(asked)).durability == "synced"


def test_writers_wait_while_too_many_records_are_unsynced(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """Above `buffer_count_max`; all of them go on after the fsync, which begins before that."""
    broker = embed(buffer_count_max=10, sync_interval=60.0, worker_timeout=60.0)
    fast, other = peers.fast(broker), peers.fast(broker)
    fast.publish("t", [b"x"])
    disk.stall("t~", "sync")
    for _ in range(10):
        fast.publish("t", [b"x"])
    assert disk.has_stalled.wait(DEADLINE_S)
    asked = fast.send_publish("t", [b"y"])
    assert fast.is_silent(0.1)
    other.call(Ping())
    disk.heal()
    replied(fast.answer_to(asked))
    assert len(fast.values("t")) == 12


class SlowDisk(FaultyDisk):
    """A disk whose fsync takes 10 ms."""

    def note(self, kind: Kind, path: Path) -> None:
        """See `FaultyDisk.note`."""
        if kind == "sync":
            pause(0.01)
        super().note(kind, path)


def test_busy_topics_share_one_worker_on_a_slow_disk(embed: Embed, peers: Peers) -> None:
    """A topic whose acknowledgements wait for the disk is never idle, and makes way all the same.

    The publishers do not wait for their answers before they go on.
    """
    broker = embed(workers_max=1, durability="synced", filesystem=SlowDisk())
    over = threading.Event()
    problems: list[BaseException] = []

    def keep_busy() -> None:
        try:
            with FastPeer(peers.context, broker.url) as fast:
                sent: list[int] = []
                while not over.is_set():
                    sent.append(fast.send_publish("busy", [b"x"]))
                    pause(0.001)
                    if len(sent) > 200:
                        replied(fast.answer_to(sent.pop(0)))
        except BaseException as problem:
            problems.append(problem)

    busy = [threading.Thread(target=keep_busy) for _ in range(3)]
    for one in busy:
        one.start()
    try:
        fast = peers.fast(broker)
        for row in range(5):
            replied(fast.answer_to(fast.send_publish(f"t{row}", [b"x"])))
    finally:
        over.set()
        for one in busy:
            one.join()
    assert problems == []
