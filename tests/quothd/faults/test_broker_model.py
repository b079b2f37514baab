"""A broker compared with a list for each topic: random requests, restarts, crashes, every record."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, SimplePeer, code_of, replied
from kit.client.clients import read_all
from kit.deadlines import eventually
from kit.disk.logs import encoded
from kit.scale import times
from quothwire.protocol.messages import CreateTopic, Publish, Published, RollTopic, TrimTopic

Pairs = list[tuple[int, bytes]]

TOPICS = ("t", "t1", "größe", "a b~c", "x" * 200)


class Model:
    """A list of (pointer, value) for each topic, and the number of its trimmed records."""

    def __init__(self) -> None:
        self.records: dict[str, Pairs] = {}
        self.trimmed: dict[str, int] = {}
        self.newest: dict[str, int] = {}

    def append(self, topic: str, first: int, values: list[bytes]) -> None:
        """Add acknowledged records; pointers rise."""
        assert first > self.newest.get(topic, 0)
        self.records.setdefault(topic, []).extend(zip(range(first, first + len(values)), values, strict=True))
        self.newest[topic] = first + len(values) - 1

    def trim(self, topic: str, count: int) -> None:
        """Remove the oldest records."""
        del self.records[topic][:count]
        self.trimmed[topic] = self.trimmed.get(topic, 0) + count


class Run:
    """A broker, its clients, the model, and the random actions on them."""

    def __init__(self, broker: BrokerProcess, peers: Peers, rng: random.Random) -> None:
        self.broker = broker
        self.peers = peers
        self.rng = rng
        self.model = Model()
        self.done: list[str] = []
        self._number = 0
        self._connect()

    def _connect(self) -> None:
        self.fast: FastPeer = self.peers.fast(self.broker)
        self.simple: SimplePeer = self.peers.simple(self.broker)

    def values(self) -> list[bytes]:
        """Return distinct values, some of them empty or long."""
        values = []
        for _ in range(self.rng.choice((1, 1, 2, 5, 30))):
            self._number += 1
            size = self.rng.choice((0, 0, 10, 100, 5_000))
            values.append(b"" if self.rng.random() < 0.05 else b"%d " % self._number + bytes(size))
        return values

    def topic(self) -> str:
        """Choose a topic."""
        return self.rng.choice(TOPICS)

    def known(self) -> str | None:
        """Choose a topic that exists."""
        return self.rng.choice(sorted(self.model.records)) if self.model.records else None

    # -- actions --------------------------------------------------------------------------------

    def publish(self) -> None:
        """Publish a batch."""
        topic, values = self.topic(), self.values()
        durability = self.rng.choice(("", "", "written", "synced"))
        self.model.append(topic, self.fast.publish(topic, values, durability).first, values)

    def publish_simply(self) -> None:
        """Publish a few values through the simple protocol."""
        topic, values = self.topic(), self.values()
        self.model.append(topic, self.simple.publish(topic, *values)[0], values)

    def publish_many(self) -> None:
        """Publish a pipeline of batches to several topics."""
        sent = [(topic, values) for topic, values in ((self.topic(), self.values()) for _ in range(20))]
        asked = [self.fast.send_publish(topic, values) for topic, values in sent]
        replies = [replied(answer) for answer in self.fast.answers_to(asked)]
        for (topic, values), reply in zip(sent, replies, strict=True):
            self.model.append(topic, reply.first, values)

    def roll(self) -> None:
        """Begin a new segment."""
        if topic := self.known():
            self.fast.call(RollTopic(), topic)

    def trim(self) -> None:
        """Trim whole segments below some record; the model takes only their number from the broker."""
        topic = self.known()
        records = self.model.records[topic] if topic else []
        if topic and records:
            before = self.rng.choice(records)[0]
            count = self.fast.call(TrimTopic(before=before), topic).records
            assert all(pointer < before for pointer, _ in records[:count])
            self.model.trim(topic, count)

    def sleep(self) -> None:
        """Wait until every topic hibernates."""
        eventually(lambda: self.fast.status(limit=0).active == 0, "all topics hibernate")

    def restart(self) -> None:
        """End the broker by SIGTERM and start it again."""
        assert self.broker.terminate() == 0
        self._start()

    def crash(self) -> None:
        """End the broker by SIGKILL and start it again."""
        self.broker.kill()
        self._start()

    def crash_in_work(self) -> None:
        """Kill the broker with batches on their way: each is stored whole or not at all, in order."""
        topic = self.topic()
        sent = [self.values() for _ in range(10)]
        asked = [self.fast.send_publish(topic, values) for values in sent]
        for row in range(self.rng.randrange(len(sent))):
            reply = replied(self.fast.answer_to(asked[row]))
            self.model.append(topic, reply.first, sent.pop(0))
        self.broker.kill()
        self._start()
        self._take_in(topic, sent)

    def _take_in(self, topic: str, sent: list[list[bytes]]) -> None:
        if topic not in self.simple.topics():
            assert topic not in self.model.records
            return
        found = self.fast.read_all(topic, self.model.newest.get(topic, 0))
        while found:
            values = sent.pop(0)
            assert [record.value for record in found[: len(values)]] == values
            self.model.append(topic, found[0].pointer, values)
            del found[: len(values)]
        self.model.records.setdefault(topic, [])

    def _start(self) -> None:
        self.fast.close()
        self.simple.close()
        self.broker.restart()
        self._connect()

    def read(self) -> None:
        """Compare a part of a topic, from any pointer."""
        topic = self.known()
        records = self.model.records[topic] if topic else []
        if topic and records:
            row = self.rng.randrange(len(records))
            after = records[row][0] - self.rng.randrange(2)
            expected = [pair for pair in records if pair[0] > after]
            limit = self.rng.choice((1, 2, 10, 100, 1_000))
            _, found = self.simple.read(topic, after, limit)
            assert found == expected[: len(found)]
            assert bool(found) == bool(expected)
            assert len(found) <= limit

    def compare(self) -> None:
        """Compare everything, through both protocols."""
        assert self.simple.topics() == sorted(self.model.records, key=str.encode)
        for topic, records in self.model.records.items():
            limit = self.rng.choice((2, 10, 100, 1_000, 10_000))
            assert read_all(self.simple, topic, 0, limit) == records
            size = self.rng.choice((1, 100, 10_000, 2**20))
            found = self.fast.read_all(topic, bytes_max=size, records_max=limit)
            assert [(record.pointer, record.value) for record in found] == records
            info = self.fast.describe(topic)
            assert info.count == len(records)
            assert info.first_ordinal == self.model.trimmed.get(topic, 0)
            if records:
                assert (info.first, info.last) == (records[0][0], records[-1][0])

    def step(self) -> None:
        """Execute a random action."""
        weights: dict[Callable[[], None], int] = {
            self.publish: 10, self.publish_simply: 10, self.publish_many: 5, self.roll: 6, self.trim: 2,
            self.sleep: 3, self.read: 10, self.compare: 2, self.restart: 1, self.crash: 1,
            self.crash_in_work: 1,
        }  # fmt: skip
        (action,) = self.rng.choices(list(weights), list(weights.values()))
        self.done.append(action.__name__)
        action()


@pytest.mark.parametrize("number", range(times(2, 40)))
def test_random_actions_leave_a_broker_equal_to_its_model(
    start_broker: StartBroker, peers: Peers, rng: random.Random, number: int
) -> None:
    broker = start_broker(worker_timeout=0.02, size_limit=20_000, workers_max=rng.choice((2, 256)))
    run = Run(broker, peers, rng)
    try:
        for _ in range(times(100, 600)):
            run.step()
        run.compare()
        run.crash()
        run.compare()
    except BaseException:
        print(" ".join(run.done))
        raise


def test_crash_at_each_stage_of_a_topic_loses_nothing(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(size_limit=10_000)
    run = Run(broker, peers, random.Random(1))
    stages: list[Callable[[], object]] = [
        lambda: run.fast.call(CreateTopic(), "t") and run.model.records.setdefault("t", []),
        lambda: run.model.append("t", run.fast.publish("t", [b"1"]).first, [b"1"]),
        lambda: run.fast.call(RollTopic(), "t"),
        lambda: run.model.append("t", run.fast.publish("t", [b"2", b""]).first, [b"2", b""]),
        lambda: run.fast.call(RollTopic(), "t") and run.fast.call(RollTopic(), "t"),
        lambda: run.model.append("t", run.fast.publish("t", [bytes(20_000)]).first, [bytes(20_000)]),
        lambda: run.model.append("t", run.fast.publish("t", [b"3"]).first, [b"3"]),
        lambda: run.model.trim("t", run.fast.call(TrimTopic(before=2**55), "t").records),
        lambda: run.model.append("t", run.fast.publish("t", [b"4"]).first, [b"4"]),
    ]
    for stage in stages:
        stage()
        run.compare()
        run.crash()
        run.compare()


def test_pointers_rise_over_crashes(start_broker: StartBroker, peers: Peers) -> None:
    """More than a record a microsecond takes pointers from the future."""
    broker = start_broker()
    fast = peers.fast(broker)
    newest = 0
    for _ in range(4):
        for _ in range(3):
            reply = fast.call(Publish(), "t", _large_batch())
            assert isinstance(reply, Published)
            assert reply.first > newest
            newest = reply.last
        broker.kill()
        fast.close()
        broker.restart()
        fast = peers.fast(broker)
    answers = [fast.request(Publish(), "t", _large_batch()) for _ in range(3)]
    assert not any(map(code_of, answers))
    pointers = [record.pointer for record in fast.read_all("t")]
    assert pointers == sorted(set(pointers))
    assert len(pointers) == 15 * 40_000


def _large_batch() -> bytes:
    return encoded([b""] * 40_000)
