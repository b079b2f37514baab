"""`written` survives the death of the broker at any instant, and so does what is known of a producer.

A loop of kills and cut connections with an exact account on both sides, then retries one by one. QUOTH_LONG=1
runs the loop many times, each with other settings; QUOTH_SEED repeats one that failed.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, hibernate
from kit.broker.proxies import Wire
from kit.client.accounts import OUTAGE_MAX_S, Account, Seen, Streams, compare, planned, read_everything
from kit.client.records import Connect
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.logs import encoded
from kit.memory_groups import MemoryGroup, memory_group, needs_memory_group
from kit.scale import times
from quoth import Client
from quothwire.protocol.messages import CreateTopic, Publish, RollTopic, TopicInfo, TrimTopic, UpdateTopic

Follow = Callable[[Wire, str], Future[Seen]]

KILLS = times(6, 12)
FIRST, LAST = "publish-first", "publish-last"
TOPICS: dict[str, dict[str, Any]] = {
    "plain": {},
    "counted": {"count_limit": 60},
    "small": {"size_limit": 30_000},
    "capped": {"max_bytes": 400_000},
    "aged": {"max_age": 1.5, "size_limit": 100_000},
    "synced": {"durability": "synced", "count_limit": 500},
}
TRIMMED = ("capped", "aged")
KINDS = ("publish", "send")
TRIALS: list[dict[str, Any]] = [
    {"workers_max": 256, "topic_requests_max": 1_024},
    {"workers_max": 256, "topic_requests_max": 6},
    {"workers_max": 3, "topic_requests_max": 1_024},
    {"workers_max": 2, "topic_requests_max": 12},
]


class KillSeries:
    """A broker that is killed again and again, and the streams that write to it over a wire that is cut.

    memory: the group of the broker, in which it is killed for want of memory, too.
    """

    def __init__(
        self,
        broker: BrokerProcess,
        wire: Wire,
        client: Client,
        rng: random.Random,
        memory: MemoryGroup | None = None,
    ) -> None:
        self.broker = broker
        self.memory = memory
        self.wire = wire
        self.client = client
        self.rng = rng
        self.kills = 0
        self.accounts: dict[str, list[Account]] = {topic: [] for topic in TOPICS}
        self._ends: dict[str, int] = {}

    def __enter__(self) -> KillSeries:
        streams = [
            Account(topic, f"{kind}-{self.rng.getrandbits(32):x}") for topic in TOPICS for kind in KINDS
        ]
        for account in streams:
            self.accounts[account.topic].append(account)
        self._streams = Streams(self.wire.url, streams)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self.broker.exit_status is not None:
            self.broker.restart()  # or those who wait for it would wait for long
        self._streams.__exit__(kind)

    def mark(self, topic: str, stream: str) -> None:
        """Publish a batch of which all is known."""
        keys, values = planned(stream, 1)
        first = self.client.publish(topic, values, key=keys).first
        self.accounts[topic].append(Account(topic, stream, [1], {1: first}))

    def goes_on(self) -> None:
        """Wait until some more has been acknowledged, and then a moment, whatever happens in it."""
        goal = self._acknowledged() + self.rng.randrange(20, 200)
        eventually(lambda: self._acknowledged() >= goal, "batches are sent and acknowledged", OUTAGE_MAX_S)
        pause(self.rng.random() * 0.02)

    def cut_and_kill(self) -> None:
        """Cut the wire, then kill the broker, sometimes while it stands still."""
        for _ in range(self.rng.randrange(4)):
            self.wire.cut()
            pause(self.rng.random() * 0.1)
        self.kills += 1
        if self.memory is not None and self.rng.random() < 0.7:
            self._kill(self.memory.exhaust)
        elif self.rng.random() < 0.3:
            self.broker.freeze()
            pause(self.rng.random() * 0.6)
            if self.rng.random() < 0.5:
                os.kill(self.broker.pid, signal.SIGCONT)
                pause(self.rng.random() * 0.1)
            self._kill()
        else:
            self._kill()
        while self.rng.random() < 0.4:
            self.kills += 1
            self.broker.launch()
            pause(self.rng.random() * 0.7)
            self._kill()
        self.broker.restart(**self.rng.choice(TRIALS))
        self.look()

    def look(self) -> None:
        """Check quickly that no acknowledged record is missing at the end of a topic."""
        for topic, accounts in self.accounts.items():
            highest = max(pointer for one in accounts for pointer in (*one.stored.copy().values(), 0))
            info = self.client.topic(topic)
            end = info.first_ordinal + info.count
            assert info.last >= highest
            assert end >= self._ends.get(topic, 0)
            assert_undamaged(info)
            self._ends[topic] = end

    def _kill(self, kill: Callable[[BrokerProcess], None] = BrokerProcess.kill) -> None:
        kill(self.broker)
        assert not self.broker.logged_problems, self.broker.stderr
        self.broker.settings["port"] = int(self.broker.url.rpartition(":")[2])

    def _acknowledged(self) -> int:
        """Acknowledged batches of all streams."""
        self._streams.check()
        return sum(len(one.stored) for accounts in self.accounts.values() for one in accounts)


def assert_undamaged(info: TopicInfo) -> None:
    """Torn bytes are quarantined; nothing else is ever wrong after a kill."""
    assert (info.problem, info.counters["damaged_bytes"], info.counters["unknown_files"]) == ("", 0, 0), info


@pytest.fixture
def follow(connect: Connect) -> Iterator[Follow]:
    """Follows a topic from its first record to `LAST`, in a thread of its own; returns once it has begun."""
    clients: list[Client] = []
    with ThreadPoolExecutor(len(TOPICS)) as pool:

        def begin(wire: Wire, topic: str) -> Future[Seen]:
            clients.append(connect(wire, timeout=OUTAGE_MAX_S))
            begun = threading.Event()
            future = pool.submit(everything, clients[-1], topic, begun)
            assert begun.wait(DEADLINE_S)
            return future

        yield begin
        for client in clients:
            client.close()  # ends the tails that still follow


def everything(client: Client, topic: str, begun: threading.Event) -> Seen:
    """All records up to the last one."""
    seen = Seen()
    for message in client.tail(topic, after=0, on_gap=seen.gaps.append):
        seen.take(message)
        begun.set()
        if message.key == planned(LAST, 1).keys[-1]:
            break
    return seen


@pytest.mark.timeout(600)  # a broker and what writes to it start dozens of times, on a busy machine
@pytest.mark.parametrize("of_memory", [False, pytest.param(True, marks=needs_memory_group)])
@pytest.mark.parametrize("turn", range(times(1, 15)))
def test_kills_at_any_moment_lose_nothing_that_was_acknowledged(
    start_broker: StartBroker,
    stack: ExitStack,
    connect: Connect,
    follow: Follow,
    rng: random.Random,
    turn: int,
    of_memory: bool,
) -> None:
    """Batches are there once and whole, in order, at their acknowledged pointers; gaps are reported.

    of_memory: most kills are those of the kernel for want of memory.
    """
    memory = stack.enter_context(memory_group()) if of_memory else None
    prefix = memory.prefix if memory is not None else ()
    broker = start_broker(worker_timeout=0.02, check_interval=0.05, prefix=prefix, **rng.choice(TRIALS))
    stack.callback(broker.close)
    wire = stack.enter_context(Wire(broker.url))
    client = connect(broker, timeout=OUTAGE_MAX_S)
    series = KillSeries(broker, wire, client, rng, memory)
    tails = {}
    for topic, settings in TOPICS.items():
        client.create_topic(topic)
        series.mark(topic, FIRST)
        tails[topic] = follow(wire, topic)
        client.update_topic(topic, **settings)  # not before: retention would remove what no tail has seen yet
    with series:
        while series.kills < KILLS or not wire.cuts:
            series.goes_on()
            series.cut_and_kill()
        series.goes_on()
    series.look()
    for topic in TOPICS:
        client.update_topic(topic, max_age=0.0, max_bytes=0)  # so that all of them see the same
        series.mark(topic, LAST)
    for topic, tail in tails.items():
        seen, now = tail.result(OUTAGE_MAX_S), read_everything(client, topic)
        info = client.topic(topic)
        assert_undamaged(info)
        compare(series.accounts[topic], seen, now, info, trims=topic in TRIMMED)


# -- retries ------------------------------------------------------------------------------------------------

ALICE = 2**64 - 1
SETTINGS: dict[str, dict[str, Any]] = {
    "roll": {},
    "trim": {},
    "max_bytes": {"max_bytes": 8_000},
    "max_age": {"max_age": 0.2},
}
"""Topics, named by what becomes of the segment of the originals."""


def sleep(broker: BrokerProcess, fast: FastPeer) -> None:
    """The topic hibernates."""
    hibernate(fast)


def stop(broker: BrokerProcess, fast: FastPeer) -> None:
    """A clean restart."""
    assert broker.terminate() == 0
    broker.restart()


def kill(broker: BrokerProcess, fast: FastPeer) -> None:
    """A crash and a restart."""
    broker.kill()
    broker.restart()


@pytest.mark.parametrize("then", [sleep, stop, kill], ids=lambda then: then.__name__)
def test_retry_is_recognised_although_its_original_is_in_another_segment_or_removed(
    start_broker: StartBroker, peers: Peers, then: Callable[[BrokerProcess, FastPeer], None]
) -> None:
    broker = start_broker(worker_timeout=0.05, check_interval=0.05)
    fast = peers.fast(broker)
    raws = [encoded([b"%d" % number, b"x"], ALICE, number) for number in range(1, 5)]
    originals, before = {}, {}
    for topic, settings in SETTINGS.items():
        fast.call(CreateTopic(settings), topic)
        originals[topic] = firsts = [fast.call(Publish(), topic, raw) for raw in raws[:3]]
        if not settings:
            fast.call(RollTopic(), topic)
            fast.publish(topic, [b"without a producer"])
        if topic == "trim":
            assert fast.call(TrimTopic(firsts[-1].last + 1), topic).records == 6

        def is_gone(topic: str = topic, last: int = firsts[-1].last) -> bool:
            fast.publish(topic, [bytes(500)])
            return bool(fast.describe(topic).first > last)

        if settings:
            eventually(is_gone, "retention has removed it")
            fast.call(UpdateTopic({"max_bytes": 0, "max_age": 0.0}), topic)
        before[topic] = fast.describe(topic)
    then(broker, fast)
    fast = peers.fast(broker)
    for topic, firsts in originals.items():
        for raw, first in zip(raws, firsts, strict=False):
            again = fast.call(Publish(), topic, raw)
            assert (again.first, again.last, again.duplicate) == (first.first, first.last, True), topic
        after, was = fast.describe(topic), before[topic]
        assert (after.count, after.first, after.last) == (was.count, was.first, was.last)
        assert not fast.call(Publish(), topic, raws[3]).duplicate
