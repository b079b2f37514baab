"""A broker compared with a list for each topic: random requests, restarts, crashes, every record."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers, hibernate, replied
from kit.client.clients import read_all
from kit.scale import times
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import RollTopic, TrimTopic

TOPICS = ("t", "t1", "größe", "a b~c", "x" * 200)


class Run:
    """A broker, its clients, the model, and the random actions on them.

    records: (pointer, value) by topic. trimmed: the number of records of a topic that are gone.
    """

    def __init__(self, broker: BrokerProcess, peers: Peers, rng: random.Random) -> None:
        self.broker = broker
        self.peers = peers
        self.rng = rng
        self.records: dict[str, list[tuple[int, bytes]]] = {}
        self.trimmed: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.done: list[str] = []
        self._number = 0
        self._connect()

    def _connect(self) -> None:
        self.fast, self.simple = self.peers.fast(self.broker), self.peers.simple(self.broker)

    def values(self) -> list[bytes]:
        """Return distinct values, some of them empty or long."""
        values = []
        for _ in range(self.rng.choice((1, 1, 2, 5, 30))):
            self._number += 1
            size = self.rng.choice((0, 0, 10, 100, 5_000))
            values.append(b"" if self.rng.random() < 0.05 else b"%d " % self._number + bytes(size))
        return values

    def stored(self, topic: str, first: int, values: list[bytes]) -> None:
        """Add records to the model; pointers rise."""
        assert first > self.newest.get(topic, 0)
        self.records.setdefault(topic, []).extend(zip(range(first, first + len(values)), values, strict=True))
        self.newest[topic] = first + len(values) - 1

    # -- actions --------------------------------------------------------------------------------

    def publish(self) -> None:
        topic, values = self.rng.choice(TOPICS), self.values()
        if self.rng.random() < 0.5:
            first, _ = self.simple.publish(topic, *values)
        else:
            first = self.fast.publish(topic, values, self.rng.choice(("", "written", "synced"))).first
        self.stored(topic, first, values)

    def publish_many(self) -> None:
        sent = [(self.rng.choice(TOPICS), self.values()) for _ in range(20)]
        asked = [self.fast.send_publish(topic, values) for topic, values in sent]
        for (topic, values), answer in zip(sent, self.fast.answers_to(asked), strict=True):
            self.stored(topic, replied(answer).first, values)

    def roll(self) -> None:
        if self.records:
            self.fast.call(RollTopic(), self.rng.choice([*self.records]))

    def trim(self) -> None:
        """Trim whole segments below some record; the model takes only their number from the broker."""
        topic = self.rng.choice(TOPICS)
        if records := self.records.get(topic):
            before = self.rng.choice(records)[0]
            count = self.fast.call(TrimTopic(before=before), topic).records
            assert all(pointer < before for pointer, _ in records[:count])
            del records[:count]
            self.trimmed[topic] = self.trimmed.get(topic, 0) + count

    def hibernate(self) -> None:
        hibernate(self.fast)

    def restart(self, number: int | None = None) -> None:
        self.broker.terminate(number or self.rng.choice((signal.SIGTERM, signal.SIGKILL)))
        self.fast.close()
        self.simple.close()
        self.broker.restart()
        self._connect()

    def crash_in_work(self) -> None:
        """Kill the broker with batches on their way: each is stored whole or not at all, in order."""
        topic, sent = self.rng.choice(TOPICS), [self.values() for _ in range(10)]
        asked = [self.fast.send_publish(topic, values) for values in sent]
        for row in range(self.rng.randrange(len(sent))):
            self.stored(topic, replied(self.fast.answer_to(asked[row])).first, sent.pop(0))
        self.restart(signal.SIGKILL)
        if topic not in self.simple.topics():
            assert topic not in self.records
            return
        self.records.setdefault(topic, [])
        found = self.fast.read_all(topic, self.newest.get(topic, 0))
        while found:
            values = sent.pop(0)
            assert [record.value for record in found[: len(values)]] == values
            self.stored(topic, found[0].pointer, values)
            del found[: len(values)]

    def compare(self) -> None:
        """Compare everything, through both protocols, and reads from any pointer."""
        assert self.simple.topics() == sorted(self.records, key=str.encode)
        for topic, records in self.records.items():
            limit = self.rng.choice((2, 10, 100, 1_000, 10_000))
            assert read_all(self.simple, topic, 0, limit) == records
            size = self.rng.choice((1, 100, 10_000, 2**20))
            found = self.fast.read_all(topic, bytes_max=size, records_max=limit)
            assert [(record.pointer, record.value) for record in found] == records
            info = self.fast.describe(topic)
            assert (info.count, info.first_ordinal) == (len(records), self.trimmed.get(topic, 0))
            if records:
                assert (info.first, info.last) == (records[0][0], records[-1][0])
                after = self.rng.choice(records)[0] - self.rng.randrange(2)
                _, some = self.simple.read(topic, after, limit)
                assert some == [pair for pair in records if pair[0] > after][: len(some)]
                assert len(some) <= limit
                assert self.simple.read(topic, POINTER_MAX) == (POINTER_MAX, [])

    def step(self) -> None:
        weights: dict[Callable[[], None], int] = {
            self.publish: 20, self.publish_many: 5, self.roll: 6, self.trim: 2, self.hibernate: 3,
            self.compare: 4, self.restart: 2, self.crash_in_work: 2,
        }  # fmt: skip
        (action,) = self.rng.choices(list(weights), list(weights.values()))
        self.done.append(action.__name__)
        action()


@pytest.mark.parametrize("number", range(times(1, 10)))
def test_random_actions_leave_a_broker_in_the_state_of_its_model(
    start_broker: StartBroker, peers: Peers, rng: random.Random, number: int
) -> None:
    settings = {"worker_timeout": 0.02, "recovering_after": 60, "size_limit": 20_000}
    broker = start_broker(**settings, workers_max=rng.choice((2, 256)))
    run = Run(broker, peers, rng)
    try:
        for _ in range(times(40, 600)):
            run.step()
        run.compare()
        run.restart()
        run.compare()
    except BaseException:
        print(" ".join(run.done))
        raise
