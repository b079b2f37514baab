"""What is quick the front end does itself; a disk that holds it up there holds up one topic and no other."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.brokers import StartBroker
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.peers import FastPeer, Peers, code_of, replied
from kit.tracing import Fault, Tracer, needs_strace
from quothd import Broker
from quothd.job import Job
from quothd.reads import Reads
from quothd.stall_guard import QUIET_S, STALL_S, StallGuard, TakenOver
from quothd.worker import Worker
from quothlog.segment import ActiveSegment
from quothwire.errors import Conflict, Disconnected
from quothwire.message import DeleteTopic, Fetch, Ping

Embed = Callable[..., Broker]

FRONT = ("quoth-front-end", "quoth-stall-guard")


@pytest.fixture
def embed(tmp_path: Path) -> Iterator[Embed]:
    """Start a broker in this process, so that its disk can be held up."""
    started: list[Broker] = []

    def start(**settings: Any) -> Broker:
        settings = {"host": "127.0.0.1", "worker_timeout": 60.0, **settings}
        started.append(Broker(tmp_path / "data", **settings).start())
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


class Disk:
    """Writes to topics whose names begin with "slow" go through, or not yet."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.threads: list[str] = []
        real = ActiveSegment.append

        def append(segment: ActiveSegment, batches: Any) -> None:
            if segment.path.parent.name.startswith("slow"):
                self.threads.append(threading.current_thread().name)
                self.reached.set()
                assert self.open.wait(DEADLINE_S)
            real(segment, batches)

        self.append = append

    def hold_up(self) -> None:
        """Hold up every such write from now on."""
        self.open.clear()
        self.reached.clear()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk below all logs of this process."""
    disk = Disk()
    monkeypatch.setattr(ActiveSegment, "append", disk.append)
    yield disk
    disk.open.set()


def relieved(fast: FastPeer) -> int:
    """How often another thread has gone on as the front end."""
    return int(fast.status(limit=0).counters["relieved"])


def awake(fast: FastPeer, *topics: str) -> None:
    """Publish to topics once, and wait until their own threads have nothing to do."""
    syncs = fast.status(limit=0).counters["syncs"] + len(topics)
    for topic in topics:
        fast.publish(topic, [b"before"])
    eventually(lambda: fast.status(limit=0).counters["syncs"] == syncs, "all is synced")


def values(fast: FastPeer, topic: str) -> list[bytes]:
    """All values of a topic."""
    return [record.value for record in fast.read_all(topic)]


# -- the broker -----------------------------------------------------------------------------------------


def test_what_is_quick_is_done_by_the_front_end(embed: Embed, peers: Peers, disk: Disk) -> None:
    """Once the topic is awake and its own thread has nothing to do."""
    fast = peers.fast(embed())
    awake(fast, "slow")

    def is_done_there() -> bool:
        fast.publish("slow", [b"x"])
        return disk.threads[-1] in FRONT

    eventually(is_done_there, "its own thread has nothing to do")
    assert len(values(fast, "slow")) == len(disk.threads)


def test_a_write_that_is_held_up_holds_up_no_other_topic(embed: Embed, peers: Peers, disk: Disk) -> None:
    """C42, C63: neither those of other clients nor those that came in the same turn."""
    broker = embed()
    fast, other = peers.fast(broker), peers.fast(broker)
    awake(fast, "slow", "a", "b")
    disk.hold_up()
    slow = fast.send_publish("slow", [b"held up"])
    rest = [fast.send_publish(topic, [b"x"]) for _ in range(50) for topic in ("a", "b")]
    assert disk.reached.wait(DEADLINE_S)
    for answer in fast.answers_to(rest):
        replied(answer)
    for _ in range(50):
        other.publish("a", [b"y"])
        other.call(Ping())
    assert len(values(other, "a")) == 101
    disk.open.set()
    replied(fast.answer_to(slow))
    assert values(fast, "slow") == [b"before", b"held up"]


def test_what_comes_meanwhile_keeps_its_place(embed: Embed, peers: Peers, disk: Disk) -> None:
    """C17: one client's publishes are stored in the order in which it sent them."""
    fast = peers.fast(embed())
    awake(fast, "slow")
    disk.hold_up()
    asked = [fast.send_publish("slow", [b"%d" % i]) for i in range(100)]
    assert disk.reached.wait(DEADLINE_S)
    pause(5 * STALL_S)
    asked += [fast.send_publish("slow", [b"%d" % i]) for i in range(100, 200)]
    pause(5 * STALL_S)
    disk.open.set()
    firsts = [replied(answer).first for answer in fast.answers_to(asked)]
    assert firsts == sorted(firsts)
    assert values(fast, "slow") == [b"before", *(b"%d" % i for i in range(200))]


def test_topics_that_are_held_up_one_after_another_hold_up_nobody(
    embed: Embed, peers: Peers, disk: Disk
) -> None:
    """C42: whoever stands in is relieved as well, and no thread is left behind."""
    fast = peers.fast(embed())
    names = [f"slow{i}" for i in range(5)]
    awake(fast, *names)
    held = []
    for name in names:
        disk.hold_up()
        held.append(fast.send_publish(name, [b"held up"]))
        assert disk.reached.wait(DEADLINE_S)
        fast.call(Ping())
    assert relieved(fast) >= 1
    disk.open.set()
    for answer in fast.answers_to(held):
        replied(answer)
    eventually(
        lambda: sum(thread.name in FRONT for thread in threading.enumerate()) == len(FRONT),
        "one has the front and one stands in",
    )


def test_a_topic_that_has_held_up_the_front_end_is_left_to_its_own_thread(
    embed: Embed, peers: Peers, disk: Disk
) -> None:
    """A disk that stalls at each write costs the other topics one moment, not one at each."""
    fast = peers.fast(embed())
    awake(fast, "slow")

    def held_up() -> str:
        """The thread that a write has held up."""
        disk.hold_up()
        asked = fast.send_publish("slow", [b"held up"])
        assert disk.reached.wait(DEADLINE_S)
        pause(5 * STALL_S)
        disk.open.set()
        replied(fast.answer_to(asked))
        return disk.threads[-1]

    eventually(lambda: held_up() in FRONT, "its own thread has nothing to do")
    assert held_up() == "quoth-topic-slow"
    assert values(fast, "slow") == [b"before", *[b"held up"] * (len(disk.threads) - 1)]


def test_a_stop_does_not_wait_for_ever_for_a_write_that_is_held_up(
    embed: Embed, peers: Peers, disk: Disk
) -> None:
    """C33, C35: it says which topic is still at work, and lets go of nothing."""
    broker = embed(stop_timeout=3.0)  # in which the other topic is surely closed
    fast = peers.fast(broker)
    awake(fast, "slow", "a")
    disk.hold_up()
    fast.send_publish("slow", [b"held up"])
    assert disk.reached.wait(DEADLINE_S)
    fast.publish("a", [b"x"])
    said = r"timed_out: 1 topic \('slow'\) still at work after 3 seconds"
    with pytest.raises(Disconnected, match=said):
        broker.stop()
    with pytest.raises(Conflict, match="locked"):
        Broker(broker.config.dir).start()
    disk.open.set()
    eventually(
        lambda: not any(thread.name in (*FRONT, "quoth-topic-slow") for thread in threading.enumerate()),
        "it is written, though late",
    )


def test_without_a_stand_in_nobody_depends_on_a_disk(
    embed: Embed, peers: Peers, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C63: no thread can be had for it; once there is one, all is as ever."""
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "quoth-stall-guard":
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    broker = embed()
    fast, other = peers.fast(broker), peers.fast(broker)
    awake(fast, "slow", "a")
    disk.hold_up()
    asked = fast.send_publish("slow", [b"held up"])
    assert disk.reached.wait(DEADLINE_S)
    other.publish("a", [b"x"])
    disk.open.set()
    replied(fast.answer_to(asked))
    assert disk.threads[-1] == "quoth-topic-slow"
    monkeypatch.undo()
    monkeypatch.setattr(ActiveSegment, "append", disk.append)

    def is_done_in_front() -> bool:
        fast.publish("slow", [b"x"])
        return disk.threads[-1] in FRONT

    eventually(is_done_in_front, "somebody stands in")


def jobs_of(worker: Worker) -> int:
    """How many requests wait for it; beside them may lie what other threads tell it."""
    return sum(isinstance(one, Job) for one in worker.inbox.content())


@pytest.mark.parametrize("whose", ["the front end's", "its own"])
def test_what_was_done_before_a_breakdown_is_answered(
    embed: Embed, peers: Peers, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """C42, C64: and what comes behind it in the same burst is refused, in whatever thread it happens."""
    real = Reads._fetch

    def fetch(reads: Reads, job: Job) -> None:
        if job.decode().after == 12_345:
            raise RuntimeError("a defect")
        real(reads, job)

    monkeypatch.setattr(Reads, "_fetch", fetch)
    broker = embed()
    fast = peers.fast(broker)
    awake(fast, "t")
    front_end = broker._front_end
    assert front_end is not None
    worker = front_end._dispatcher._entries["t"].worker
    assert worker is not None
    worker._alone_until = math.inf if whose == "its own" else 0.0
    with worker._lock:
        before = fast.send_publish("t", [b"a"])
        breaks = fast.send(Fetch(after=12_345, records_max=1, bytes_max=1_000, wait_ms=0), "t")
        behind = fast.send_publish("t", [b"b"])
        eventually(lambda: jobs_of(worker) == 3, "all of it is there")
    if whose == "its own":
        worker.inbox.put(None)
    else:
        worker.inbox.bring(None)
    assert replied(fast.answer_to(before)).count == 1
    for asked in (breaks, behind):
        assert code_of(fast.answer_to(asked)) == "internal"
    monkeypatch.undo()
    assert values(fast, "t") == [b"before", b"a"]
    assert fast.call(DeleteTopic(), "t").records == 2


@needs_strace
def test_a_daemon_whose_writes_are_held_up_serves_other_topics(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """C42, C63: where the operating system is asked."""
    broker = start_broker(worker_timeout=60, sync_interval=0.05)
    fast, other = peers.fast(broker), peers.fast(broker)
    awake(fast, "slow", "a")
    (segment,) = broker.topics_directory.glob("slow~*/*.seg")
    held_up = Fault("writev", 1, "delay_enter=60000000", str(segment), lasting=True)
    with Tracer(broker.pid, tmp_path / "trace", held_up):
        asked = fast.send_publish("slow", [b"held up"])
        for _ in range(20):
            other.publish("a", [b"x"])
        assert fast.is_silent(0)
    replied(fast.answer_to(asked))
    assert values(fast, "slow") == [b"before", b"held up"]


# -- the guard ------------------------------------------------------------------------------------------


class Front:
    """Counts who has had the front."""

    def __init__(self) -> None:
        self.served = threading.Semaphore(0)
        self.guard = StallGuard(self.served.release)
        self.guard.start()


class Clock:
    """The monotonic clock of `timed`: only the test moves it, so a slow machine makes no difference."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        """How often the watching thread has read it."""

    def monotonic(self) -> float:
        """See `time.monotonic`."""
        self.looks += threading.current_thread().name == FRONT[1]
        return self.now


@pytest.fixture
def front() -> Iterator[Front]:
    """A guard that watches as it does in a broker."""
    front = Front()
    yield front
    front.guard.stop()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of `timed`."""
    clock = Clock()
    monkeypatch.setattr("quothd.stall_guard.time", clock)
    return clock


@pytest.fixture
def timed(clock: Clock, front: Front) -> Front:
    """The same, by `clock`."""
    return front


def test_who_is_quick_keeps_the_front(timed: Front, clock: Clock) -> None:
    """However often it is watched over, and looked at."""
    done: list[int] = []

    def work() -> None:
        done.append(len(done))
        clock.now += 0.9 * STALL_S

    while clock.looks < 50:
        timed.guard.watch("t", work)
    assert done == [*range(len(done))]
    clock.now += 10 * STALL_S
    assert not timed.served.acquire(timeout=5 * STALL_S)


@pytest.mark.parametrize("idle_s", [0.0, 3 * QUIET_S])
def test_who_is_held_up_is_relieved_once(front: Front, idle_s: float) -> None:
    """However long nobody had to be watched over before."""
    pause(idle_s)

    def work() -> None:
        assert front.served.acquire(timeout=DEADLINE_S)

    with pytest.raises(TakenOver):
        front.guard.watch("t", work)
    assert front.guard.relieved == 1
    assert not front.served.acquire(timeout=5 * STALL_S)


def test_what_goes_wrong_in_the_front_is_not_hidden(timed: Front, clock: Clock) -> None:
    """And whoever it happens to is watched over no more."""

    def work() -> None:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        timed.guard.watch("t", work)
    clock.now += 10 * STALL_S
    assert not timed.served.acquire(timeout=5 * STALL_S)


def test_it_costs_next_to_nothing_to_be_watched_over(timed: Front, clock: Clock) -> None:
    """A call takes a microsecond or two, and an idle broker is not woken."""

    def nothing() -> None:
        pass

    began = time.thread_time()
    for _ in range(10_000):
        timed.guard.watch("t", nothing)
    assert (time.thread_time() - began) / 10_000 < 20e-6
    clock.now += 3 * QUIET_S
    pause(3 * QUIET_S)
    computed = time.process_time()
    pause(0.3)
    assert time.process_time() - computed < 0.02
