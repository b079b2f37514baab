"""The front end handles what is quick; a disk that stalls it there stalls one topic and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, replied
from kit.clocks import SECOND, HookedClock, ManualClock
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.doubles import FaultyDisk
from kit.machine.tracing import Fault, Tracer, needs_strace
from quothd import Broker
from quothd.threads.executor import SLOW_S, Holder
from quothd.threads.stall_guard import QUIET_S, STALL_S, StallGuard
from quothwire.errors import Conflict, Disconnected
from quothwire.protocol.messages import DeleteTopic, Ping

Embed = Callable[..., Broker]

FRONT = ("quoth-front-end", "quoth-stall-guard")


@pytest.fixture
def embed(embed: Embed) -> Embed:
    """Start a broker as the fixture of this name does, whose topics do not hibernate."""
    return partial(embed, worker_timeout=600.0)


def takeovers(fast: FastPeer) -> int:
    """Count how often another thread has become the front end."""
    return int(fast.status(limit=0).counters["takeovers"])


def open_topics(fast: FastPeer, *topics: str) -> None:
    """Publish to topics once, and wait until their own threads have nothing to do."""
    syncs = fast.status(limit=0).counters["syncs"] + len(topics)
    for topic in topics:
        fast.publish(topic, [b"before"])
    eventually(lambda: fast.status(limit=0).counters["syncs"] == syncs, "all is synced")


def last_writer(disk: FaultyDisk, topic: str) -> str:
    """The thread that has written to a topic last."""
    return [thread for folder, thread in disk.writers if folder.startswith(f"{topic}~")][-1]


def stalled_publish(fast: FastPeer, disk: FaultyDisk, topic: str = "slow", value: bytes = b"stalled") -> int:
    """Send a publish whose write the disk stalls."""
    disk.stall(topic)
    sent = fast.send_publish(topic, [value])
    assert disk.has_stalled.wait(DEADLINE_S)
    return sent


def is_written_by_the_front_end(fast: FastPeer, disk: FaultyDisk) -> bool:
    """Publish to the topic "slow"; True if the front end writes the record itself."""
    fast.publish("slow", [b"x"])
    return last_writer(disk, "slow") in FRONT


# -- the broker -----------------------------------------------------------------------------------------


def test_the_front_end_handles_what_is_quick(embed: Embed, peers: Peers, disk: FaultyDisk) -> None:
    fast = peers.fast(embed())
    open_topics(fast, "t")
    fast.publish("t", [b"x"])
    assert last_writer(disk, "t") in FRONT
    assert fast.values("t") == [b"before", b"x"]


def test_a_stalled_write_stalls_no_other_topic(embed: Embed, peers: Peers, disk: FaultyDisk) -> None:
    """Neither for other clients nor for requests that came together with the stalled one."""
    broker = embed()
    fast, other = peers.fast(broker), peers.fast(broker)
    open_topics(fast, "slow", "a", "b")
    slow = stalled_publish(fast, disk)
    rest = [fast.send_publish(topic, [b"x"]) for _ in range(50) for topic in ("a", "b")]
    for answer in fast.answers_to(rest):
        replied(answer)
    for _ in range(50):
        other.publish("a", [b"y"])
        other.call(Ping())
    assert len(other.values("a")) == 101
    assert takeovers(other) == 1
    disk.heal()
    replied(fast.answer_to(slow))
    assert fast.values("slow") == [b"before", b"stalled"]


def test_requests_behind_a_stalled_one_keep_their_order(embed: Embed, peers: Peers, disk: FaultyDisk) -> None:
    fast = peers.fast(embed())
    open_topics(fast, "slow")
    sent = [stalled_publish(fast, disk, value=b"0")]
    sent += [fast.send_publish("slow", [b"%d" % i]) for i in range(1, 100)]
    pause(5 * STALL_S)
    sent += [fast.send_publish("slow", [b"%d" % i]) for i in range(100, 200)]
    pause(5 * STALL_S)
    disk.heal()
    firsts = [replied(answer).first for answer in fast.answers_to(sent)]
    assert firsts == sorted(firsts)
    assert fast.values("slow") == [b"before", *(b"%d" % i for i in range(200))]


def test_topics_that_stall_one_after_another_leave_no_thread_behind(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """Another thread takes over from the one that has taken over before."""
    fast = peers.fast(embed())
    names = [f"slow{i}" for i in range(5)]
    open_topics(fast, *names)
    stalled = []
    for name in names:
        disk.has_stalled.clear()
        disk.stall("slow")
        stalled.append(fast.send_publish(name, [b"stalled"]))
        assert disk.has_stalled.wait(DEADLINE_S)
        fast.call(Ping())
    assert takeovers(fast) >= 1
    disk.heal()
    for answer in fast.answers_to(stalled):
        replied(answer)
    eventually(
        lambda: sum(thread.name in FRONT for thread in threading.enumerate()) == len(FRONT),
        "one is the front end and one watches",
    )


def test_a_topic_that_has_stalled_the_front_end_is_left_to_its_own_thread_for_a_while(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """A disk that stalls at each write costs the other topics one delay, not one at each."""
    clock = HookedClock()
    fast = peers.fast(embed(clock=clock, check_interval=600.0))
    open_topics(fast, "slow")
    sent = stalled_publish(fast, disk)
    assert last_writer(disk, "slow") in FRONT
    eventually(lambda: takeovers(fast) == 1, "another thread is the front end")
    disk.heal()
    replied(fast.answer_to(sent))
    fast.publish("slow", [b"x"])
    assert last_writer(disk, "slow") == "quoth-topic-slow"
    clock.ahead = SLOW_S + 1.0
    eventually(lambda: is_written_by_the_front_end(fast, disk), "the time is over")


def test_a_busy_machine_is_no_stalled_disk(embed: Embed, peers: Peers, disk: FaultyDisk) -> None:
    """A thread that gets no processor for a while stays the front end."""
    fast = peers.fast(embed())
    open_topics(fast, "slow")
    disk.shows_stalls = False
    sent = stalled_publish(fast, disk)
    pause(10 * STALL_S)
    disk.heal()
    replied(fast.answer_to(sent))
    assert takeovers(fast) == 0
    assert is_written_by_the_front_end(fast, disk)


def test_a_stop_gives_up_on_a_stalled_write_and_keeps_the_lock(
    embed: Embed, peers: Peers, disk: FaultyDisk
) -> None:
    """The error names the topic."""
    broker = embed(stop_timeout=3.0)  # in which the other topic is surely closed
    fast = peers.fast(broker)
    open_topics(fast, "slow", "a")
    stalled_publish(fast, disk)
    fast.publish("a", [b"x"])
    said = r"timed_out: 1 topic \('slow'\) still at work after 3 seconds"
    with pytest.raises(Disconnected, match=said):
        broker.stop()
    with pytest.raises(Conflict, match="locked"):
        Broker(broker.config.dir).start()
    disk.heal()
    eventually(
        lambda: not any(thread.name in FRONT for thread in threading.enumerate()),
        "it is written, though late",
    )


def test_without_a_guard_the_front_end_handles_nothing_that_a_disk_could_stall(
    embed: Embed, peers: Peers, disk: FaultyDisk, refuse_threads: Callable[[str], None]
) -> None:
    """No thread can be started for it; once one can, the front end handles requests again."""
    refuse_threads("quoth-stall-guard")
    broker = embed()
    fast, other = peers.fast(broker), peers.fast(broker)
    open_topics(fast, "slow", "a")
    sent = stalled_publish(fast, disk)
    other.publish("a", [b"x"])
    disk.heal()
    replied(fast.answer_to(sent))
    assert last_writer(disk, "slow") == "quoth-topic-slow"
    refuse_threads("")
    eventually(lambda: is_written_by_the_front_end(fast, disk), "a guard watches")


@pytest.mark.parametrize("holder", [Holder.FRONT, Holder.THREAD])
def test_requests_before_a_defect_are_answered_and_those_behind_it_refused_or_repeated(
    embed: Embed, peers: Peers, holder: Holder, disk: FaultyDisk
) -> None:
    """By the topic that is opened anew, in any thread."""
    broker = embed()
    fast, other = peers.fast(broker), peers.fast(broker)
    open_topics(fast, "t")
    disk.shows_stalls = holder is Holder.THREAD
    first = stalled_publish(fast, disk, "t", b"first")
    if holder is Holder.THREAD:
        eventually(lambda: takeovers(other) == 1, "its own thread is next")
    disk.fail("read", problem=RuntimeError("a defect"))
    before = fast.send_publish("t", [b"a"])
    breaks = fast.send_fetch("t")
    behind = fast.send_publish("t", [b"b"])
    disk.go_on()
    assert replied(fast.answer_to(first)).count == 1
    assert replied(fast.answer_to(before)).count == 1
    assert code_of(fast.answer_to(breaks)) == "internal"
    is_stored = code_of(fast.answer_to(behind)) == ""
    assert fast.values("t") == [b"before", b"first", b"a", *[b"b"] * is_stored]
    assert fast.call(DeleteTopic(), "t").records == 3 + is_stored


@needs_strace
def test_a_daemon_whose_writes_are_stalled_serves_other_topics(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """The guard asks the operating system whether a thread waits for a disk."""
    broker = start_broker(worker_timeout=60, sync_interval=0.05)
    fast, other = peers.fast(broker), peers.fast(broker)
    open_topics(fast, "slow", "a")
    (segment,) = broker.topics_directory.glob("slow~*/*.seg")
    stalled = Fault("writev", 1, "delay_enter=60000000", str(segment), lasting=True)
    with Tracer(broker.pid, tmp_path / "trace", stalled):
        sent = fast.send_publish("slow", [b"stalled"])
        for _ in range(20):
            other.publish("a", [b"x"])
        assert fast.is_silent(0)
    replied(fast.answer_to(sent))
    assert fast.values("slow") == [b"before", b"stalled"]


# -- the guard ------------------------------------------------------------------------------------------


class Watched:
    """A guard that watches this thread, and its clock; counts the threads that have become the front end."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.is_stalled = True
        self.looks = 0
        self.served = threading.Semaphore(0)
        self.guard = StallGuard(self.served.release, self.clock, self._look)
        self.guard.enter()
        self.guard.start()

    def step(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.step(round(seconds * SECOND))

    def _look(self, thread_id: int) -> bool:
        assert thread_id == threading.main_thread().native_id
        self.looks += 1
        return self.is_stalled


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Start a guard that watches this thread."""
    watched = Watched()
    yield watched
    watched.guard.stop()


def test_a_thread_that_is_quick_stays_the_front_end(watched: Watched) -> None:
    for _ in range(1_000):
        watch = watched.guard.begin("t", watched.clock.monotonic())
        watched.step(0.9 * STALL_S)
        assert not watched.guard.is_taken_over(watch)
    watched.step(10 * STALL_S)
    assert not watched.served.acquire(timeout=5 * STALL_S)
    assert not watched.looks


def test_a_thread_that_waits_for_a_disk_is_taken_over_once(watched: Watched) -> None:
    watched.step(3 * QUIET_S)
    pause(3 * STALL_S)
    watch = watched.guard.begin("t", watched.clock.monotonic())
    watched.step(STALL_S)
    assert watched.served.acquire(timeout=DEADLINE_S)
    assert watched.guard.is_taken_over(watch)
    assert watched.guard.takeovers == 1
    assert not watched.served.acquire(timeout=5 * STALL_S)


def test_a_thread_that_waits_for_a_processor_stays_the_front_end(watched: Watched) -> None:
    watched.is_stalled = False
    watch = watched.guard.begin("t", watched.clock.monotonic())
    watched.step(100 * STALL_S)
    eventually(lambda: watched.looks > 2, "the guard looks why")
    assert not watched.guard.is_taken_over(watch)
    assert watched.guard.takeovers == 0


def test_a_guard_costs_next_to_nothing(watched: Watched) -> None:
    """A watch takes a microsecond or two, and an idle broker uses no processor."""
    began = time.thread_time()
    for _ in range(10_000):
        assert not watched.guard.is_taken_over(watched.guard.begin("t", 0.0))
    assert (time.thread_time() - began) / 10_000 < 20e-6
    watched.step(3 * QUIET_S)
    pause(3 * QUIET_S)
    computed = time.process_time()
    pause(0.3)
    assert time.process_time() - computed < 0.02
