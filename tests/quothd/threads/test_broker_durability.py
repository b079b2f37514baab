"""What an acknowledgement promises, and what becomes of a topic whose disk fails."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, found_in, refused, replied
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.doubles import FaultyDisk
from kit.machine.processes import listing
from kit.scale import times
from quothd import Broker
from quothd.datadir import catalog
from quothd.requests.events import Event, Failed
from quothd.threads import executor as executor_module
from quothd.threads.executor import Executor
from quothd.threads.outbox import Outbox
from quothd.topics.topic import Topic
from quothlog.appender import Appender
from quothlog.storage.filesystem import PosixFile
from quothwire.protocol.messages import (
    CreateTopic,
    DeleteTopic,
    ListTopics,
    Ping,
    RollTopic,
    TrimTopic,
    UpdateTopic,
)

Embed = Callable[..., Broker]


@pytest.fixture
def disk() -> FaultyDisk:
    """The disk below all logs of `embed`."""
    return FaultyDisk()


@pytest.fixture
def embed(tmp_path: Path, disk: FaultyDisk) -> Iterator[Embed]:
    """Start a broker in this process, so that its disk can be made to fail."""
    started: list[Broker] = []

    def start(**settings: Any) -> Broker:
        settings = {"host": "127.0.0.1", **settings}
        started.append(Broker(tmp_path / "data", filesystem=disk, **settings).start())
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


class Gate:
    """Lets fsync go through, or not yet."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()

    def close(self) -> None:
        """Hold up every fsync from now on."""
        self.open.clear()
        self.reached.clear()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate in front of every fsync of a file in this process."""
    gate = Gate()
    real = PosixFile.sync

    def sync(file: PosixFile) -> None:
        gate.reached.set()
        assert gate.open.wait(DEADLINE_S)
        real(file)

    monkeypatch.setattr(PosixFile, "sync", sync)
    yield gate
    gate.open.set()


def values(fast: FastPeer, topic: str) -> list[bytes]:
    """All values of a topic."""
    return [record.value for record in fast.read_all(topic)]


# -- the levels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_topic", "asked", "reached"),
    [
        ("written", "", "written"),
        ("written", "written", "written"),
        ("written", "synced", "synced"),
        ("synced", "", "synced"),
        ("synced", "written", "synced"),
        ("synced", "synced", "synced"),
    ],
)
def test_the_reply_tells_the_level_that_is_reached(
    fast: FastPeer, topic: str, of_topic: str, asked: str, reached: str
) -> None:
    """C23: the topic's own or a higher one."""
    fast.call(CreateTopic({"durability": of_topic}), topic)
    assert fast.publish(topic, [b"x"], asked).durability == reached


@pytest.mark.parametrize("asked", ["replicated", "SYNCED", "memory", " "])
def test_a_level_that_does_not_exist_is_refused(fast: FastPeer, topic: str, asked: str) -> None:
    """C23: and makes no topic."""
    with refused("bad_request"):
        fast.publish(topic, [b"x"], asked)
    assert topic not in fast.call(ListTopics()).names


def test_one_fsync_serves_many(fast: FastPeer, topic: str) -> None:
    """C23: a pipeline of synced publishes takes far fewer of them than there are publishes."""
    fast.call(CreateTopic({"durability": "synced"}), topic)
    before = fast.status(limit=0).counters["syncs"]
    for answer in fast.answers_to([fast.send_publish(topic, [b"x"]) for _ in range(500)]):
        assert replied(answer).durability == "synced"
    assert fast.status(limit=0).counters["syncs"] - before < 250


def test_what_is_written_is_synced_soon_though_nobody_asks(start_broker: StartBroker, peers: Peers) -> None:
    """C22: within `sync_interval`, and not again and again afterwards."""
    broker = start_broker(sync_interval=0.05, worker_timeout=60)
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    eventually(lambda: fast.status(limit=0).counters["syncs"] == 1, "it has been synced")
    pause(0.3)
    assert fast.status(limit=0).counters["syncs"] == 1


def test_readers_of_a_synced_topic_see_what_is_synced(embed: Embed, peers: Peers, gate: Gate) -> None:
    """C25: neither a fetch nor one that waits sees it before, and the acknowledgement comes after it."""
    broker = embed(durability="synced", worker_timeout=60.0)
    fast, reader = peers.fast(broker), peers.fast(broker)
    last = fast.publish("t", [b"before"]).last
    gate.close()
    asked = fast.send_publish("t", [b"x"])
    waits = reader.send_fetch("t", last, wait_ms=60_000)
    assert gate.reached.wait(DEADLINE_S)
    assert reader.fetch("t", last).records == []
    assert reader.fetch("t", last).reply.newest == last
    assert fast.is_silent(0.1)
    gate.open.set()
    reply = replied(fast.answer_to(asked))
    assert (reply.durability, reply.first) == ("synced", found_in(reader.answer_to(waits)).reply.next)
    assert values(fast, "t") == [b"before", b"x"]


def test_an_acknowledgement_of_one_synced_publish_waits(embed: Embed, peers: Peers, gate: Gate) -> None:
    """C23: on a topic that is not; its readers see the record at once, other writers do not wait."""
    fast = peers.fast(embed(worker_timeout=60.0))
    last = fast.publish("t", [b"before"]).last
    gate.close()
    asked = fast.send_publish("t", [b"x"], "synced")
    assert gate.reached.wait(DEADLINE_S)
    assert fast.publish("t", [b"y"]).durability == "written"
    assert fast.fetch("t", last).values == [b"x", b"y"]
    with pytest.raises(AssertionError):
        fast.answer_to(asked, 0.1)
    gate.open.set()
    assert replied(fast.answer_to(asked)).durability == "synced"


def test_a_slow_fsync_costs_no_computing(
    embed: Embed, peers: Peers, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C63: the worker sleeps while an acknowledgement waits for longer than `worker_timeout`."""
    rounds = count()
    real = Topic.tick

    def tick(topic: Topic, now: float) -> list[Event]:
        next(rounds)
        return real(topic, now)

    fast = peers.fast(embed(worker_timeout=0.2, check_interval=0.1))
    fast.publish("t", [b"x"], "synced")
    gate.close()
    asked = fast.send_publish("t", [b"x"], "synced")
    assert gate.reached.wait(DEADLINE_S)
    pause(0.3)
    monkeypatch.setattr(Topic, "tick", tick)
    pause(0.5)
    assert next(rounds) < 50
    gate.open.set()
    replied(fast.answer_to(asked))


def test_too_much_that_is_not_synced_makes_writers_wait(embed: Embed, peers: Peers, gate: Gate) -> None:
    """C22: `buffer_count_max`; once it is synced all of them go on."""
    broker = embed(buffer_count_max=10, sync_interval=60.0, worker_timeout=60.0)
    fast, other = peers.fast(broker), peers.fast(broker)
    fast.publish("t", [b"x"])
    gate.close()
    for _ in range(10):
        fast.publish("t", [b"x"])
    assert gate.reached.wait(DEADLINE_S), "the fsync begins before it is too much"
    asked = fast.send_publish("t", [b"y"])
    assert fast.is_silent(0.1)
    other.call(Ping())
    gate.open.set()
    replied(fast.answer_to(asked))
    assert len(values(fast, "t")) == 12


def test_many_busy_topics_share_one_worker_though_the_disk_is_slow(
    embed: Embed, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C63: where acknowledgements wait for the disk, a busy topic never runs out of work; it makes way.

    The publishers go on without waiting for their answers, so there is no moment at which it is idle.
    """
    real = PosixFile.sync

    def sync(file: PosixFile) -> None:
        pause(0.01)
        real(file)

    monkeypatch.setattr(PosixFile, "sync", sync)
    broker = embed(workers_max=1, durability="synced")
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


# -- a disk that fails ----------------------------------------------------------------------------------


def test_a_failed_fsync_stops_the_writing_for_good(embed: Embed, peers: Peers, disk: FaultyDisk) -> None:
    """C24: nobody who waited is promised anything, reading goes on, after sleep too; a restart heals."""
    broker = embed(worker_timeout=0.05)
    fast = peers.fast(broker)
    fast.publish("t", [b"1"], "synced")
    fast.publish("other", [b"1"])
    eventually(lambda: fast.status(limit=0).active == 0, "all topics sleep")
    disk.fail("sync", 2)  # the first is that of the opening
    with refused("storage_failed"):
        fast.publish("t", [b"2"], "synced")
    disk.heal()
    for _ in range(3):
        with refused("storage_failed"):
            fast.publish("t", [b"3"])
        assert values(fast, "t")[0] == b"1"
        assert "Input/output error" in fast.describe("t").problem
        eventually(lambda: fast.status(limit=0).active == 0, "all topics sleep")
    with refused("storage_failed"):
        fast.call(RollTopic(), "t")
    fast.publish("other", [b"2"])
    broker.stop()
    fast.close()
    fast = peers.fast(embed())
    assert fast.describe("t").problem == ""
    fast.publish("t", [b"4"])
    assert (values(fast, "t")[0], values(fast, "t")[-1]) == (b"1", b"4")


def test_a_failed_fsync_in_the_background_is_told_to_the_next_writer(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """C24."""
    fast = peers.fast(embed(sync_interval=0.05, worker_timeout=60.0))
    fast.publish("t", [b"1"], "synced")
    disk.fail("sync")
    fast.publish("t", [b"2"])
    eventually(lambda: "Input/output error" in fast.describe("t").problem, "the failure is known")
    with refused("storage_failed"):
        fast.publish("t", [b"3"])
    assert values(fast, "t")[0] == b"1"


def test_a_failed_fsync_on_the_way_to_sleep_is_not_forgotten(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """C24, C42."""
    broker = embed(sync_interval=60.0, worker_timeout=60.0)
    fast = peers.fast(broker)
    fast.publish("t", [b"1"], "synced")
    disk.fail("sync")
    fast.publish("t", [b"2"])
    broker.reload(replace(broker.config, worker_timeout=0.05))  # before, an opening would meet the fault
    eventually(lambda: fast.status(limit=0).active == 0, "the topic sleeps")
    with refused("storage_failed"):
        fast.publish("t", [b"3"])
    assert values(fast, "t")[0] == b"1"


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("written", [0, 10, 100])
def test_a_full_disk_takes_nothing_and_recovers(
    embed: Embed, peers: Peers, disk: FaultyDisk, problem: int, written: int
) -> None:
    """C24: not even a part of a batch stays; reading goes on, writing does by itself once there is room."""
    broker = embed(worker_timeout=60.0)  # a topic that falls asleep writes its index, and meets the fault
    fast = peers.fast(broker)
    fast.publish("t", [b"1"])
    disk.fail("write", problem=problem, written=written)
    with refused("disk_low"):
        fast.publish("t", [b"2" * 200])
    assert values(fast, "t") == [b"1"]
    fast.publish("t", [b"3"])
    assert values(fast, "t") == [b"1", b"3"]
    broker.stop()
    fast.close()
    assert values(peers.fast(embed()), "t") == [b"1", b"3"]


def test_writing_stops_before_the_disk_is_full(start_broker: StartBroker, peers: Peers) -> None:
    """C24: `disk_free_min`; reading, trimming and deleting go on, so that somebody can make room."""
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
    assert values(fast, "t") == [b"0", b"1", b"2"]
    fast.call(UpdateTopic({"max_age": 1e6}), "t")
    assert fast.call(TrimTopic(before=pointers[1]), "other").records == 1
    assert fast.call(DeleteTopic(), "other").records == 2
    assert broker.terminate() == 0
    fast.close()
    fast = peers.fast(broker.restart(disk_free_min=0))
    fast.publish("t", [b"3"])
    assert values(fast, "t") == [b"0", b"1", b"2", b"3"]


PASSES = pytest.mark.parametrize(
    ("problem", "code"),
    [(errno.ENOSPC, "disk_low"), (errno.EDQUOT, "disk_low"), (errno.EMFILE, "busy"), (errno.ENOMEM, "busy")],
)


@PASSES
@pytest.mark.parametrize("place", ["make", "save"])
def test_what_passes_may_be_tried_again_where_a_topic_is_made(
    embed: Embed, peers: Peers, monkeypatch: pytest.MonkeyPatch, problem: int, code: str, place: str
) -> None:
    """C24, C37: by a publish, by create, and where its settings are changed."""
    fast = peers.fast(embed())
    fast.publish("old", [b"x"])

    def fail(*_: object, **_keys: object) -> None:
        raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr(catalog, place, fail)
    attempts: list[Callable[[], object]] = [
        lambda: fast.publish("new", [b"x"]),
        lambda: fast.call(CreateTopic(), "new"),
    ]
    if place == "save":
        attempts.append(lambda: fast.call(UpdateTopic({"max_age": 5.0}), "old"))
    for attempt in attempts:
        with refused(code):
            attempt()
    assert fast.call(ListTopics()).names == ["old"]
    monkeypatch.undo()
    for attempt in (*attempts[:1], *attempts[2:]):
        attempt()
    assert values(fast, "old") == values(fast, "new") == [b"x"]


@PASSES
@pytest.mark.parametrize("kind", ["create", "write"])
def test_what_passes_may_be_tried_again_where_a_log_is_begun(
    embed: Embed, peers: Peers, disk: FaultyDisk, problem: int, code: str, kind: Any
) -> None:
    """C24: a full disk, or a process without descriptors, is not a disk that failed."""
    fast = peers.fast(embed())
    disk.fail(kind, problem=problem)
    with refused(code):
        fast.publish("t", [b"x"])
    fast.publish("t", [b"y"])
    assert values(fast, "t") == [b"y"]


def test_a_topic_that_cannot_be_opened_for_want_of_descriptors_is_busy(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """C24: to readers and writers, while it lasts."""
    fast = peers.fast(embed(worker_timeout=0.05))
    fast.publish("t", [b"1"])
    eventually(lambda: fast.status(limit=0).active == 0, "the topic sleeps")
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
    assert values(fast, "t") == [b"1", b"2"]


def test_retention_of_a_topic_that_could_not_be_opened_is_done_later(
    embed: Embed, peers: Peers, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C45, C46: though nobody asks for the topic meanwhile."""
    monkeypatch.setattr("quothd.frontend.dispatcher.RETRY_US", 200_000)
    fast = peers.fast(embed(worker_timeout=0.05, check_interval=0.05))
    fast.call(CreateTopic({"max_age": 1.0}), "t")
    fast.publish("t", [b"x"])
    disk.fail("open", problem=errno.EMFILE, lasting=True)  # long before anything is due
    before = disk.count("open")
    eventually(lambda: disk.count("open") >= before + 2, "its retention is tried again")
    assert fast.describe("t").count == 1
    disk.heal()
    eventually(lambda: fast.describe("t").count == 0, "its retention is done")


def test_retention_for_which_there_are_no_descriptors_disturbs_nobody(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """C24, C45: it is done later; publishing goes on meanwhile."""
    fast = peers.fast(embed(check_interval=0.01, worker_timeout=60.0))
    fast.call(CreateTopic({"max_bytes": 4_000, "count_limit": 1}), "t")
    disk.fail("remove", problem=errno.EMFILE, lasting=True)
    for i in range(20):
        fast.publish("t", [b"%d" % i + bytes(1_000)])
    eventually(lambda: disk.count("remove") > 3, "retention is tried")
    assert len(values(fast, "t")) == 20
    disk.heal()
    eventually(lambda: fast.describe("t").bytes <= 4_000, "retention is done")


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_topic_that_cannot_be_made_is_not_there(
    embed: Embed, peers: Peers, disk: FaultyDisk, tmp_path: Path, kind: Any
) -> None:
    """C24, C37: no half of it stays, neither in a listing nor on the disk, however often it is tried."""
    fast = peers.fast(embed(worker_timeout=60.0))
    fast.publish("other", [b"x"], "synced")  # and it stays awake: nothing is done to it that meets the fault
    before = listing(tmp_path / "data" / "topics")
    for _ in range(3):
        disk.fail(kind)
        with refused("storage_failed"):
            fast.publish("t", [b"x"])
        disk.heal()
        assert fast.call(ListTopics()).names == ["other"]
        assert [name for name in listing(tmp_path / "data" / "topics") if name.startswith("t~")] == []
    assert set(listing(tmp_path / "data" / "topics")) >= set(before)
    fast.publish("t", [b"x"])
    assert values(fast, "t") == [b"x"]


def test_retention_that_fails_is_tried_again_in_peace(embed: Embed, peers: Peers, disk: FaultyDisk) -> None:
    """C45: a sleeping topic is not opened over and over because something is due that cannot be done."""
    fast = peers.fast(embed(worker_timeout=0.05, check_interval=0.05))
    fast.call(CreateTopic({"age_limit": 0.2}), "t")
    disk.fail("create", lasting=True, problem=errno.ENOSPC)
    fast.publish("t", [b"x"])
    eventually(lambda: fast.status(limit=0).active == 0, "the topic sleeps")
    pause(0.5)
    before = disk.count("open")
    pause(1.0)
    assert disk.count("open") - before < 20
    assert values(fast, "t") == [b"x"]
    assert fast.describe("t").problem == ""
    disk.heal()
    fast.publish("t", [b"y"])
    fast.call(RollTopic(), "t")
    assert values(fast, "t") == [b"x", b"y"]


def test_a_worker_that_breaks_down_answers_everybody(
    embed: Embed, peers: Peers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C64: with `internal`, wherever their requests were; the next one finds the topic as it was."""
    broker = embed()
    fast = peers.fast(broker)
    fast.publish("t", [b"before"])
    real = Appender.append_batches
    for round_ in range(times(20, 200)):
        broken = iter([True])

        def append(one: Appender, raws: Any, broken: Iterator[bool] = broken, least: int = round_ % 5) -> Any:
            if len(raws) > least and next(broken, False):
                raise RuntimeError("a defect")
            return real(one, raws)

        monkeypatch.setattr(Appender, "append_batches", append)
        asked = [fast.send_publish("t", [b"x"]) for _ in range(50)]
        asked += [fast.send_fetch("t", 0) for _ in range(20)]
        codes = [code_of(answer) for answer in fast.answers_to(asked)]
        assert set(codes) <= {"", "internal"}
    monkeypatch.undo()
    assert "a defect" in caplog.text
    fast.publish("t", [b"after"])
    assert values(fast, "t")[0] == b"before"
    assert values(fast, "t")[-1] == b"after"
    assert fast.call(DeleteTopic(), "t").records > 0


def test_a_request_that_comes_while_its_worker_breaks_down_is_answered(
    embed: Embed, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C42, C64: a thread was given it that has ended already, unknown to the front end."""
    broker = embed()
    fast, late = peers.fast(broker), peers.fast(broker)
    fast.publish("t", [b"before"])
    asked: list[int] = []
    real = Outbox.post

    def post(outbox: Outbox[Any], executor: Executor, events: Sequence[Event]) -> None:
        if any(isinstance(event, Failed) for event in events):
            asked.append(late.send_publish("t", [b"late"]))
            eventually(lambda: not executor.thread._lists.empty(), "its thread was given the request")
        real(outbox, executor, events)

    def append(one: Appender, raws: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Outbox, "post", post)
    monkeypatch.setattr(Appender, "append_batches", append)
    monkeypatch.setattr(executor_module, "count_quick", lambda *_: 0)
    with refused("internal"):
        fast.publish("t", [b"x"])
    assert code_of(late.answer_to(asked[0])) == "internal"
    monkeypatch.undo()
    fast.publish("t", [b"after"])
    assert fast.call(DeleteTopic(), "t").records == 2
