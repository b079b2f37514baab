"""The promises of an acknowledgement, the syncs that keep them, and disks that fail."""

from __future__ import annotations

import time
from collections.abc import Callable

from kit.broker.peers import FastPeer, Peers, found_in, hibernate, refused, replied
from kit.clocks import HookedClock
from kit.deadlines import DEADLINE_S, pause
from kit.disk.doubles import FaultyDisk
from quothd import Broker
from quothwire.protocol.messages import (
    CreateTopic,
    Ping,
    RollTopic,
)

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
    fast = peers.fast(embed(worker_timeout=60.0, check_interval=0.1, clock=clock))
    last = fast.publish("t", [b"before"], "synced").last
    disk.stall("t~", "sync")
    asked = fast.send_publish("t", [b"x"], "synced")
    assert disk.has_stalled.wait(DEADLINE_S)
    assert fast.publish("t", [b"y"]).durability == "written"
    assert fast.fetch("t", last).values == [b"x", b"y"]
    clock.ahead = 61.0
    began = time.monotonic()
    clock.hook = looks.append
    pause(0.3)
    assert fast.is_silent(0)
    assert len(looks) < 1_000 * (time.monotonic() - began), (
        "a thread that never sleeps looks at it far more often"
    )
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


# -- a disk that fails --------------------------------------------------------------------------------------


def test_a_failed_fsync_ends_the_writing_until_a_restart(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """The publish that waits for it is refused, reading goes on, before and after hibernation."""
    broker = embed(worker_timeout=0.05)
    fast = peers.fast(broker)
    fast.publish("t", [b"1"], "synced")
    fast.publish("other", [b"1"])
    hibernate(fast)
    disk.fail("sync", 2)  # the first is that of the opening
    with refused("storage_failed"):
        fast.publish("t", [b"2"], "synced")
    disk.heal()
    for _ in range(3):
        with refused("storage_failed"):
            fast.publish("t", [b"3"])
        assert fast.values("t")[0] == b"1"
        assert "Input/output error" in fast.describe("t").problem
        hibernate(fast)
    with refused("storage_failed"):
        fast.call(RollTopic(), "t")
    fast.publish("other", [b"2"])
    broker.stop()
    fast.close()
    fast = peers.fast(embed())
    assert fast.describe("t").problem == ""
    fast.publish("t", [b"4"])
    assert (fast.values("t")[0], fast.values("t")[-1]) == (b"1", b"4")
