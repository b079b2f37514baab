"""The front end handles what is quick; a disk that stalls it there stalls one topic and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, replied
from kit.clocks import SECOND, HookedClock, ManualClock
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.doubles import FaultyDisk
from kit.disk.small_disks import mounted
from kit.machine.processes import needs_proc
from quothd import Broker
from quothd.threads.executor import SLOW_S
from quothd.threads.stall_guard import AGAIN_S, QUIET_S, STALL_S, StallGuard
from quothwire.protocol.messages import Ping

Embed = Callable[..., Broker]

FRONT = ("quoth-front-end", "quoth-stall-guard")


@pytest.fixture
def embed(embed: Embed) -> Embed:
    """Start a broker as the fixture of this name does, whose topics do not hibernate."""
    return partial(embed, worker_timeout=600.0)


def takeovers(fast: FastPeer) -> int:
    return int(fast.status(limit=0).counters["takeovers"])


def open_topics(fast: FastPeer, *topics: str) -> None:
    """Publish to topics once, and wait until their own threads have nothing to do."""
    syncs = fast.status(limit=0).counters["syncs"] + len(topics)
    for topic in topics:
        fast.publish(topic, [b"before"])
    eventually(lambda: fast.status(limit=0).counters["syncs"] == syncs, "all is synced")


def last_writer(disk: FaultyDisk, topic: str) -> str:
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


def test_a_stalled_write_stalls_no_other_topic(embed: Embed, peers: Peers, disk: FaultyDisk) -> None:
    """Neither for other clients nor for requests that came together with the stalled one.

    Those behind the stalled one keep their order. Its topic is left to its own thread for a while.
    """
    clock = HookedClock()
    broker = embed(clock=clock, check_interval=600.0)
    fast, other = peers.fast(broker), peers.fast(broker)
    open_topics(fast, "slow", "a", "b")
    slow = [stalled_publish(fast, disk, value=b"0")]
    assert last_writer(disk, "slow") in FRONT
    slow += [fast.send_publish("slow", [b"%d" % i]) for i in range(1, 50)]
    rest = [fast.send_publish(topic, [b"x"]) for _ in range(50) for topic in ("a", "b")]
    for answer in fast.answers_to(rest):
        replied(answer)
    for _ in range(50):
        other.publish("a", [b"y"])
        other.call(Ping())
    assert len(other.values("a")) == 101
    assert takeovers(other) == 1
    slow += [fast.send_publish("slow", [b"%d" % i]) for i in range(50, 100)]
    disk.heal()
    firsts = [replied(answer).first for answer in fast.answers_to(slow)]
    assert firsts == sorted(firsts)
    assert fast.values("slow") == [b"before", *(b"%d" % i for i in range(100))]
    fast.publish("slow", [b"x"])
    assert last_writer(disk, "slow") == "quoth-topic-slow"
    clock.ahead = SLOW_S + 1.0
    eventually(lambda: is_written_by_the_front_end(fast, disk), "the time is over")


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
        self.clock.step(round(seconds * SECOND))

    def _look(self, thread_id: int) -> bool:
        assert thread_id == threading.main_thread().native_id
        self.looks += 1
        return self.is_stalled


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.guard.stop()


def test_a_front_end_below_the_stall_limit_is_not_taken_over(watched: Watched) -> None:
    for _ in range(1_000):
        watch = watched.guard.begin("t", watched.clock.monotonic())
        watched.step(0.9 * STALL_S)
        assert not watched.guard.is_taken_over(watch)
    watched.step(10 * STALL_S)
    assert not watched.served.acquire(timeout=5 * STALL_S)
    assert not watched.looks


def test_a_front_end_that_waits_for_a_disk_is_taken_over_once(watched: Watched) -> None:
    watched.step(3 * QUIET_S)
    eventually(lambda: watched.guard._sleeps, "the guard sleeps")
    watch = watched.guard.begin("t", watched.clock.monotonic())
    watched.step(STALL_S)
    assert watched.served.acquire(timeout=DEADLINE_S)
    assert watched.guard.is_taken_over(watch)
    assert watched.guard.takeovers == 1
    assert not watched.served.acquire(timeout=5 * STALL_S)


def test_a_takeover_before_the_watch_is_returned_is_seen_at_its_end(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine may let the guard go on first, where the system cannot tell what the reason is."""
    watched.step(3 * QUIET_S)
    eventually(lambda: watched.guard._sleeps, "the guard sleeps")
    wakeups = watched.guard._wanted

    def let_the_guard_take_over(item: None) -> None:
        wakeups.put(item)
        assert watched.served.acquire(timeout=DEADLINE_S)

    with monkeypatch.context() as patch:
        patch.setattr(watched.guard, "_wanted", SimpleNamespace(put=let_the_guard_take_over, get=wakeups.get))
        watch = watched.guard.begin("t", watched.clock.monotonic() - STALL_S)
    assert watched.guard.is_taken_over(watch)


def test_a_front_end_that_waits_for_a_processor_is_not_taken_over(watched: Watched) -> None:
    watched.is_stalled = False
    watch = watched.guard.begin("t", watched.clock.monotonic())
    watched.step(100 * STALL_S)
    eventually(lambda: watched.looks > 2, "the guard looks why")
    assert not watched.guard.is_taken_over(watch)
    assert watched.guard.takeovers == 0


def test_a_guard_without_a_thread_is_inactive_until_one_can_be_started(
    refuse_threads: Callable[[str], None],
) -> None:
    refuse_threads("quoth-stall-guard")
    guard = Watched().guard
    assert not guard.can_watch(AGAIN_S / 2)
    refuse_threads("")
    assert not guard.can_watch(AGAIN_S / 2)
    assert guard.can_watch(2 * AGAIN_S)
    guard.stop()


def cost_of_a_watch(guard: StallGuard) -> float:
    began = time.thread_time()
    for _ in range(10_000):
        assert not guard.is_taken_over(guard.begin("t", 0.0))
    return (time.thread_time() - began) / 10_000


def computed_meanwhile() -> float:
    before = time.process_time()
    pause(0.3)
    return time.process_time() - before


def test_a_guard_costs_little_processor_time(watched: Watched) -> None:
    """A watch takes a microsecond or two, and an idle broker uses no processor.

    A busy machine spoils one measurement, or what is left of other tests does, but not three.
    """
    assert any(cost_of_a_watch(watched.guard) < 20e-6 for _ in range(3))
    watched.step(3 * QUIET_S)
    eventually(lambda: watched.guard._sleeps, "the guard sleeps")
    assert any(computed_meanwhile() < 0.02 for _ in range(3))


# -- a real file system -------------------------------------------------------------------------------------


@needs_proc
def test_a_frozen_file_system_delays_only_requests_that_write(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """The front end that waits in the write is replaced, once; reads and pings go on."""
    with mounted("ext4", tmp_path) as disk:
        settings = {"worker_timeout": 60, "check_interval": 600, "sync_interval": 0.01, "disk_free_min": 0}
        broker = start_broker(directory=disk.path / "data", **settings)
        fast, other = peers.fast(broker), peers.fast(broker)
        for topic in ("slow", "other"):
            fast.publish(topic, [b"before"])
        before = other.status(limit=0).counters["takeovers"]
        eventually(lambda: other.status(limit=0).counters["syncs"] >= 2, "nothing is left to sync")
        with disk.frozen():
            sent = fast.send_publish("slow", [b"stalled"])
            for _ in range(50):
                other.call(Ping())
                assert [record.value for record in other.read_all("other")] == [b"before"]
            eventually(
                lambda: other.status(limit=0).counters["takeovers"] == before + 1, "another thread serves"
            )
            assert fast.is_silent(0)
        assert replied(fast.answer_to(sent)).count == 1
        assert [record.value for record in other.read_all("slow")] == [b"before", b"stalled"]
        broker.close()
