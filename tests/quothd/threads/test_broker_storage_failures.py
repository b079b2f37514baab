"""A topic whose disk fails, or that breaks down by a defect. Single failures are in the table of a topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kit.broker.peers import FastPeer, Peers, code_of, hibernates, refused
from kit.deadlines import eventually
from kit.disk.doubles import FaultyDisk
from kit.scale import times
from quothd import Broker
from quothwire.protocol.messages import (
    DeleteTopic,
    RollTopic,
)

Embed = Callable[..., Broker]


def hibernate(fast: FastPeer) -> None:
    """Wait until all topics hibernate."""
    eventually(lambda: hibernates(fast), "all topics hibernate")


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


@pytest.mark.parametrize("cause", ["sync interval", "hibernation"])
def test_a_failed_fsync_in_the_background_refuses_the_next_publish(
    embed: Embed, peers: Peers, disk: FaultyDisk, cause: str
) -> None:
    broker = embed(sync_interval=0.05 if cause == "sync interval" else 60.0, worker_timeout=60.0)
    fast = peers.fast(broker)
    fast.publish("t", [b"1"], "synced")
    disk.fail("sync")
    fast.publish("t", [b"2"])
    if cause == "hibernation":
        broker.reload(replace(broker.config, worker_timeout=0.05))  # before, an opening would meet the fault
        hibernate(fast)
    eventually(lambda: "Input/output error" in fast.describe("t").problem, "the failure is known")
    with refused("storage_failed"):
        fast.publish("t", [b"3"])
    assert fast.values("t")[0] == b"1"


def test_a_topic_that_breaks_down_answers_each_request_and_is_opened_anew(
    embed: Embed, peers: Peers, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """With `internal`, wherever the requests were; no record that was acknowledged before is lost."""
    fast = peers.fast(embed())
    fast.publish("t", [b"before"])
    failed = 0
    for row in range(times(5, 200)):
        disk.fail("read", 1 + row % 5, RuntimeError("a defect"))
        asked = [fast.send_publish("t", [b"x"]) for _ in range(25)]
        for _ in range(20):
            asked += [fast.send_fetch("t", 0), fast.send_publish("t", [b"x"])]
        codes = [code_of(answer) for answer in fast.answers_to(asked)]
        assert set(codes) <= {"", "internal"}
        failed += codes.count("internal") > 1
        disk.heal()
    assert failed, "requests behind the broken one are answered, too"
    assert "a defect" in caplog.text
    fast.publish("t", [b"after"])
    assert fast.values("t")[0] == b"before"
    assert fast.values("t")[-1] == b"after"
    assert fast.call(DeleteTopic(), "t").records > 0
