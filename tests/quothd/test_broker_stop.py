"""Stopping: what was acknowledged is there afterwards, all who asked are answered, the directory is free."""

from __future__ import annotations

import random
import signal
import threading

import pytest

from kit.brokers import BrokerProcess, StartBroker
from kit.deadlines import eventually
from kit.effort import times
from kit.peers import FastPeer, Peers, code_of, found_in, replied
from quothwire.pointer import POINTER_MAX

ASKED = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


class Load:
    """Publishers in threads of their own, until the broker does not answer any more."""

    def __init__(self, peers: Peers, broker: BrokerProcess, topics: int) -> None:
        self.acknowledged: dict[str, dict[int, bytes]] = {}
        self.codes: set[str] = set()
        self.problems: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._publish, args=(peers, broker.url, f"t{row}"))
            for row in range(topics)
        ]
        for thread in self._threads:
            thread.start()

    def _publish(self, peers: Peers, url: str, topic: str) -> None:
        stored = self.acknowledged.setdefault(topic, {})
        try:
            with FastPeer(peers.context, url) as fast:
                sent: dict[int, bytes] = {}
                number = 0
                while not self._over.is_set():
                    while len(sent) < 20:
                        number += 1
                        sent[fast.send_publish(topic, [b"%d" % number])] = b"%d" % number
                    if fast.is_silent(0.05):
                        continue
                    answer = fast.receive()
                    value = sent.pop(answer.correlation)
                    self.codes.add(code_of(answer))
                    if not code_of(answer):
                        stored[replied(answer).first] = value
        except BaseException as problem:
            self.problems.append(problem)

    @property
    def count(self) -> int:
        """Records acknowledged so far."""
        return sum(map(len, self.acknowledged.values()))

    def end(self) -> None:
        """Let them go home."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        assert self.problems == []


@ASKED
@pytest.mark.parametrize("durability", ["written", "synced"])
def test_a_stop_under_load_loses_nothing_that_was_acknowledged(
    start_broker: StartBroker, peers: Peers, number: int, durability: str
) -> None:
    """C32, C35: exit status 0, requests answered or refused as `stopping`, everything there afterwards."""
    broker = start_broker(durability=durability)
    load = Load(peers, broker, 4)
    try:
        eventually(lambda: load.count > times(500, 10_000), "there is load")
        assert broker.terminate(number) == 0
        assert "unlocked" in broker.stderr
    finally:
        load.end()
    assert load.codes <= {"", "stopping"}
    broker.restart()
    fast = peers.fast(broker)
    for topic, stored in load.acknowledged.items():
        found = {record.pointer: record.value for record in fast.read_all(topic)}
        assert stored.items() <= found.items()
        assert list(map(int, found.values())) == list(range(1, len(found) + 1))


def test_a_crash_under_load_loses_nothing_that_was_acknowledged(
    start_broker: StartBroker, peers: Peers, rng: random.Random
) -> None:
    """C32: killed at any moment, again and again; it starts unattended and goes on."""
    broker = start_broker(worker_timeout=0.05, size_limit=5_000)
    everything: dict[str, dict[int, bytes]] = {}
    for _ in range(times(3, 30)):
        load = Load(peers, broker, 3)
        try:
            enough = load.count + rng.randrange(times(400, 2_000))
            eventually(lambda load=load, enough=enough: load.count > enough, "there is load")  # type: ignore[misc]
            broker.kill()
        finally:
            load.end()
        for topic, stored in load.acknowledged.items():
            everything.setdefault(topic, {}).update(stored)
        broker.restart()
    fast = peers.fast(broker)
    for topic, stored in everything.items():
        found = {record.pointer: record.value for record in fast.read_all(topic)}
        assert stored.items() <= found.items()


@ASKED
def test_who_waits_is_told_that_the_broker_stops(
    start_broker: StartBroker, peers: Peers, number: int
) -> None:
    """C35, C54: on topics that exist and on others, awake or asleep."""
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    last = fast.publish("t", [b"x"]).last
    asked = [fast.send_fetch("t", last, wait_ms=60_000) for _ in range(100)]
    asked += [fast.send_fetch("unknown", 0, wait_ms=60_000) for _ in range(100)]
    eventually(lambda: fast.status(limit=0).waits == 200, "all wait")
    assert broker.terminate(number) == 0
    assert {code_of(answer) for answer in fast.answers_to(asked)} == {"stopping"}


def test_what_is_in_work_is_answered(start_broker: StartBroker, peers: Peers) -> None:
    """C35: a pipeline that has arrived is stored and acknowledged before the end."""
    broker = start_broker(durability="synced")
    fast = peers.fast(broker)
    for _ in range(times(5, 100)):
        asked = [fast.send_publish("t", [bytes(10_000)]) for _ in range(100)]
        replied(fast.answer_to(asked[0]))
    assert broker.terminate() == 0
    answers = [fast.answer_to(one) for one in asked[1:]]
    stored = 1 + sum(not code_of(answer) for answer in answers)
    assert {code_of(answer) for answer in answers} <= {"", "stopping"}
    fast.close()
    broker.restart()
    count = peers.fast(broker).describe("t").count
    assert count == (times(5, 100) - 1) * 100 + stored


def test_large_replies_on_their_way_arrive(start_broker: StartBroker, peers: Peers) -> None:
    """C35, C60: what a reader asked for before the stop."""
    broker = start_broker()
    fast = peers.fast(broker)
    for _ in range(8):
        fast.publish("t", [bytes(2**20)])
    asked = [fast.send_fetch("t", 0, bytes_max=2**20) for _ in range(20)]
    first = fast.answer_to(asked[0])
    assert broker.terminate() == 0
    for answer in [first, *fast.answers_to(asked[1:])]:
        assert code_of(answer) == "stopping" or found_in(answer).values == [bytes(2**20)]


def test_a_stop_is_quick_when_nothing_is_to_be_done(start_broker: StartBroker, peers: Peers) -> None:
    """C35: also with connected clients, waiting ones among them, and with sleeping topics."""
    broker = start_broker()
    fast = peers.fast(broker)
    for row in range(50):
        fast.publish(f"t{row}", [b"x"])
    fast.send_fetch("t0", POINTER_MAX, wait_ms=60_000)
    assert broker.terminate() == 0


def test_a_client_that_does_not_read_does_not_hold_up_the_stop(
    start_broker: StartBroker, peers: Peers
) -> None:
    """C35, C60."""
    broker = start_broker()
    fast = peers.fast(broker)
    for _ in range(8):
        fast.publish("t", [bytes(2**20)])
    deaf = peers.fast(broker, unread_max=1)
    for _ in range(300):
        deaf.send_fetch("t", 0)
    fast.publish("t", [b"x"])
    assert broker.terminate() == 0


def test_stopping_while_topics_are_opened(start_broker: StartBroker, peers: Peers) -> None:
    """C32, C35: in the background after a start, with requests for all of them."""
    broker = start_broker()
    fast = peers.fast(broker)
    for row in range(100):
        fast.publish(f"t{row}", [b"x"])
    for _ in range(3):
        assert broker.terminate() == 0
        fast.close()
        fast = peers.fast(broker.restart())
        for row in range(100):
            fast.send_fetch(f"t{row}", 0)
    assert broker.terminate() == 0
    fast.close()
    fast = peers.fast(broker.restart())
    assert all(fast.fetch(f"t{row}").values == [b"x"] for row in range(100))


def test_a_broker_that_was_stopped_leaves_nothing_to_recover(start_broker: StartBroker, peers: Peers) -> None:
    """C35: everything is synced and checkpointed, so the next start reads next to nothing."""
    broker = start_broker()
    fast = peers.fast(broker)
    for i in range(50):
        fast.publish("t", [b"%d %d" % (i, j) for j in range(100)])
    assert broker.terminate() == 0
    assert [path.suffix for path in sorted(broker.topics_directory.rglob("0*"))] == [".idx", ".seg"]
    fast.close()
    fast = peers.fast(broker.restart())
    info = fast.describe("t")
    assert info.count == 5_000
    assert (info.counters["torn_bytes"], info.counters["damaged_bytes"]) == (0, 0)
