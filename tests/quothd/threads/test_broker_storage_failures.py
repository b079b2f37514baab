"""A topic whose disk fails, is full, or cannot be opened for want of descriptors."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, refused
from kit.clocks import HookedClock
from kit.deadlines import eventually, pause
from kit.disk.doubles import FaultyDisk, Kind
from kit.machine.processes import listing
from kit.scale import times
from quothd import Broker
from quothd.topics.changes import RETRY_US
from quothwire.protocol.messages import (
    CreateTopic,
    DeleteTopic,
    ListTopics,
    RollTopic,
    TrimTopic,
    UpdateTopic,
)

Embed = Callable[..., Broker]


def hibernate(fast: FastPeer) -> None:
    """Wait until all topics hibernate."""
    eventually(lambda: fast.status(limit=0).active == 0, "all topics hibernate")


# -- a disk that fails ----------------------------------------------------------------------------------


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


def test_a_topic_that_cannot_be_made_leaves_nothing_behind(
    embed: Embed, peers: Peers, disk: FaultyDisk, tmp_path: Path
) -> None:
    """Neither in a listing nor on the disk, however often it is tried."""
    fast = peers.fast(embed(worker_timeout=60.0))
    fast.publish("other", [b"x"], "synced")  # it stays open: no maintenance of it meets the fault
    before = listing(tmp_path / "data" / "topics")
    kinds: tuple[Kind, ...] = ("create", "write", "sync", "rename", "sync_directory")
    for kind in kinds * 3:
        disk.fail(kind)
        with refused("storage_failed"):
            fast.publish("t", [b"x"])
        disk.heal()
        assert fast.call(ListTopics()).names == ["other"]
        assert [name for name in listing(tmp_path / "data" / "topics") if name.startswith("t~")] == []
    assert set(listing(tmp_path / "data" / "topics")) >= set(before)
    fast.publish("t", [b"x"])
    assert fast.values("t") == [b"x"]


# -- what passes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("written", [0, 10, 100])
def test_a_full_disk_stores_no_part_of_a_batch_and_recovers(
    embed: Embed, peers: Peers, disk: FaultyDisk, problem: int, written: int
) -> None:
    """Reading goes on, and so does writing once there is room."""
    broker = embed(worker_timeout=60.0)  # a topic that hibernates writes its index, and meets the fault
    fast = peers.fast(broker)
    fast.publish("t", [b"1"])
    disk.fail("write", problem=problem, written=written)
    with refused("disk_low"):
        fast.publish("t", [b"2" * 200])
    assert fast.values("t") == [b"1"]
    fast.publish("t", [b"3"])
    assert fast.values("t") == [b"1", b"3"]
    broker.stop()
    fast.close()
    assert peers.fast(embed()).values("t") == [b"1", b"3"]


def test_writing_stops_before_the_disk_is_full(start_broker: StartBroker, peers: Peers) -> None:
    """At `disk_free_min`; reading, trimming and deleting go on, so that there can be room again."""
    broker = start_broker()
    fast = peers.fast(broker)
    for topic in ("t", "other"):
        fast.call(CreateTopic({"count_limit": 1}), topic)
        pointers = [fast.publish(topic, [b"%d" % i]).first for i in range(3)]
    assert broker.terminate() == 0
    fast.close()
    fast = peers.fast(broker.restart(disk_free_min=2**60))
    for topic in ("t", "new"):
        with refused("disk_low"):
            fast.publish(topic, [b"x"])
    problem = fast.answer_to(fast.send_publish("t", [b"x"])).reply
    assert f"{2**60:,}"[:7] in str(problem), "how much is needed"
    assert fast.values("t") == [b"0", b"1", b"2"]
    fast.call(UpdateTopic({"max_age": 1e6}), "t")
    assert fast.call(TrimTopic(before=pointers[1]), "other").records == 1
    assert fast.call(DeleteTopic(), "other").records == 2
    assert broker.terminate() == 0
    fast.close()
    fast = peers.fast(broker.restart(disk_free_min=0))
    fast.publish("t", [b"3"])
    assert fast.values("t") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("problem", "code"),
    [(errno.ENOSPC, "disk_low"), (errno.EDQUOT, "disk_low"), (errno.EMFILE, "busy"), (errno.ENOMEM, "busy")],
)
def test_a_want_of_room_or_descriptors_refuses_a_topic_and_its_settings_for_now(
    embed: Embed, peers: Peers, disk: FaultyDisk, problem: int, code: str
) -> None:
    """Both while settings are stored and while a log is begun; the next attempt succeeds."""
    fast = peers.fast(embed(worker_timeout=60.0))
    fast.publish("old", [b"x"], "synced")
    attempts: list[Callable[[], object]] = [
        lambda: fast.call(CreateTopic(), "new"),
        lambda: fast.call(UpdateTopic({"max_age": 5.0}), "old"),
        lambda: fast.publish("new", [b"x"]),
    ]
    faults: list[tuple[Kind, int]] = [("create", 1), ("write", 1), ("rename", 1)]
    for kind, nth in faults:
        for attempt in attempts:
            disk.fail(kind, nth, problem)
            with refused(code):
                attempt()
        assert fast.call(ListTopics()).names == ["old"]
    for kind in ("create", "write"):  # the second ones are those of the segment
        disk.fail(kind, 2, problem)
        with refused(code):
            fast.publish(f"new {kind}", [b"x"])
        disk.heal()
        fast.publish(f"new {kind}", [b"y"])
        assert fast.values(f"new {kind}") == [b"y"]
    for attempt in attempts[1:]:
        attempt()
    assert fast.values("old") == fast.values("new") == [b"x"]


def test_a_topic_that_cannot_be_opened_for_want_of_descriptors_is_busy(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    fast = peers.fast(embed(worker_timeout=0.05))
    fast.publish("t", [b"1"])
    hibernate(fast)
    disk.fail("open", problem=errno.EMFILE, lasting=True)
    for ask in (
        lambda: fast.publish("t", [b"x"]),
        lambda: fast.fetch("t"),
        lambda: fast.call(RollTopic(), "t"),
    ):
        with refused("busy"):
            ask()
    disk.heal()
    fast.publish("t", [b"2"])
    assert fast.values("t") == [b"1", b"2"]


# -- retention ------------------------------------------------------------------------------------------


def test_retention_of_a_topic_that_could_not_be_opened_is_done_later(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """Without a request for the topic."""
    clock = HookedClock()
    fast = peers.fast(embed(worker_timeout=0.05, check_interval=0.05, clock=clock))
    fast.call(CreateTopic({"max_age": 1.0}), "t")
    fast.publish("t", [b"x"])
    hibernate(fast)
    disk.fail("open", problem=errno.EMFILE, lasting=True)
    for _ in range(2):
        before = disk.count("open")
        clock.ahead += RETRY_US / 1e6
        eventually(lambda before=before: disk.count("open") > before, "it is tried")  # type: ignore[misc]
    assert fast.describe("t").count == 1
    disk.heal()
    clock.ahead += RETRY_US / 1e6
    eventually(lambda: fast.describe("t").count == 0, "its retention is done")


def test_retention_without_descriptors_is_done_later_and_publishes_go_on(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    fast = peers.fast(embed(check_interval=0.01, worker_timeout=60.0))
    fast.call(CreateTopic({"max_bytes": 4_000, "count_limit": 1}), "t")
    disk.fail("remove", problem=errno.EMFILE, lasting=True)
    for i in range(20):
        fast.publish("t", [b"%d" % i + bytes(1_000)])
    eventually(lambda: disk.count("remove") > 3, "retention is tried")
    assert len(fast.values("t")) == 20
    disk.heal()
    eventually(lambda: fast.describe("t").bytes <= 4_000, "retention is done")


def test_retention_that_fails_does_not_open_a_topic_again_and_again(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    fast = peers.fast(embed(worker_timeout=0.05, check_interval=0.05))
    fast.call(CreateTopic({"age_limit": 0.2}), "t")
    disk.fail("create", lasting=True, problem=errno.ENOSPC)
    fast.publish("t", [b"x"])
    hibernate(fast)
    pause(0.5)
    before = disk.count("open")
    pause(1.0)
    assert disk.count("open") - before < 20
    assert fast.values("t") == [b"x"]
    assert fast.describe("t").problem == ""
    disk.heal()
    fast.publish("t", [b"y"])
    fast.call(RollTopic(), "t")
    assert fast.values("t") == [b"x", b"y"]


# -- a defect -------------------------------------------------------------------------------------------


def test_a_topic_that_breaks_down_answers_each_request_and_is_opened_anew(
    embed: Embed, peers: Peers, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """With `internal`, wherever the requests were; no record that was acknowledged before is lost."""
    fast = peers.fast(embed())
    fast.publish("t", [b"before"])
    failed = 0
    for row in range(times(20, 200)):
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
