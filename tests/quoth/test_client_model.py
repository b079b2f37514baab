"""Client and broker together against a plain model: lists of records, whatever dies or is cut meanwhile.

QUOTH_LONG=1 runs many more lives; QUOTH_SEED repeats a run that failed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count, islice, pairwise

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Wire
from kit.deadlines import DEADLINE_S, eventually
from kit.scale import times
from quoth import Client, Gap, Message

Connect = Callable[..., Client]
Step = Callable[[str], None]

NAMES = ("a", "ä b", "~c")
ALL = 1_000_000


class Life:
    """A broker, a client of it, and what its topics should hold."""

    def __init__(self, broker: BrokerProcess, client: Client, rng: random.Random) -> None:
        self.broker = broker
        self.client = client
        self.rng = rng
        self.topics: dict[str, list[Message]] = {}
        self.trimmed: dict[str, int] = {}
        """Records that were removed from a topic."""
        self.values = count()
        self.steps: list[tuple[Step, int]] = [
            (self.publish, 12), (self.produce, 3), (self.publish_under_fire, 2),
            (self.read, 6), (self.read_between, 4), (self.read_batches, 3), (self.tail, 3), (self.get, 3),
            (self.trim, 2), (self.roll, 1), (self.update, 1), (self.delete, 1),
            (self.describe, 2), (self.kill, 1), (self.terminate, 1),
        ]  # fmt: skip

    def live(self, steps: int) -> None:
        """Do random things; each checks itself."""
        chosen = self.rng.choices(*zip(*self.steps, strict=True), k=steps)
        for step in chosen:
            topic = self.rng.choice(NAMES)
            if topic in self.topics:
                step(topic)
            elif step in (self.read, self.get, self.describe, self.roll):
                with refused("unknown_topic"):
                    self.client.topic(topic)
            elif self.rng.random() < 0.5:
                self.client.create_topic(topic, count_limit=self.rng.randrange(12))
                self.topics[topic] = []
                self.trimmed[topic] = 0
        for topic in self.topics:
            self.read(topic)
        assert self.client.topics() == sorted(self.topics, key=str.encode)

    # -- writing ----------------------------------------------------------------------------------------

    def publish(self, topic: str) -> None:
        """A batch of records of every shape."""
        size = self.rng.randint(1, 6)
        values = [self.value() for _ in range(size)]
        keys = [self.rng.choice((None, b"", b"key")) for _ in values]
        headers = [self.rng.choice(({}, {"n": b"v"}, {"ü": b"", "m": bytes(9)})) for _ in values]
        durability = self.rng.choice((None, "written", "synced"))
        ack = self.client.publish(topic, values, key=keys, headers=headers, durability=durability)  # type: ignore[arg-type]
        assert ack.count == size
        known = self.topics[topic]
        assert not known or ack.first > known[-1].pointer
        known += [
            Message(topic, ack.first + row, *record)
            for row, record in enumerate(zip(values, keys, headers, strict=True))
        ]

    def produce(self, topic: str) -> None:
        """A stream of records."""
        values = [self.value() for _ in range(self.rng.randint(1, 300))]
        with self.client.producer(topic, batch=self.rng.randint(1, 50)) as producer:
            for value in values:
                producer.send(value)
        self.found_behind(topic, values)

    def publish_under_fire(self, topic: str) -> None:
        """A stream of records and single ones, and the broker is killed meanwhile."""
        values = [self.value() for _ in range(self.rng.randint(50, 2_000))]
        with self.client.producer(topic, batch=10) as producer, ThreadPoolExecutor() as pool:
            moment = self.rng.randrange(len(values))
            for value in values[:moment]:
                producer.send(value)
            crash = pool.submit(self.kill, topic)
            for value in values[moment:]:
                producer.send(value)
            producer.flush()
            crash.result()
        self.found_behind(topic, values)
        value = self.value()
        with ThreadPoolExecutor() as pool:
            crash = pool.submit(self.kill, topic)
            self.client.publish(topic, value)
            crash.result()
        self.found_behind(topic, [value])

    def found_behind(self, topic: str, values: list[bytes]) -> None:
        """Take in what came behind the last known record: exactly these values."""
        known = self.topics[topic]
        found = self.client.read(topic, after=known[-1].pointer if known else 0, limit=ALL)
        assert [message.value for message in found] == values
        assert all(a.pointer < b.pointer for a, b in pairwise(found))
        known += found

    # -- reading ----------------------------------------------------------------------------------------

    def read(self, topic: str) -> None:
        """All of it, in portions."""
        limit = self.rng.choice((1, 7, 100, ALL)) if len(self.topics[topic]) < 300 else ALL
        found: list[Message] = []
        while portion := self.client.read(topic, after=found[-1].pointer if found else 0, limit=limit):
            found += portion
        assert found == self.topics[topic]

    def read_between(self, topic: str) -> None:
        """Between two bounds, which may be records or not."""
        low, high = sorted((self.pointer(topic), self.pointer(topic)))
        limit = self.rng.choice((3, ALL))
        found = self.client.read(topic, since=low, until=high, limit=limit)
        assert found == [one for one in self.topics[topic] if low <= one.pointer < high][:limit]

    def read_batches(self, topic: str) -> None:
        """Batches behind a cursor."""
        after = self.pointer(topic)
        found = [message for one in self.client.batches(topic, after=after) for message in one.messages()]
        assert found == [one for one in self.topics[topic] if one.pointer > after]

    def tail(self, topic: str) -> None:
        """A tail from a cursor, and one from now on."""
        after = self.pointer(topic)
        expected = [one for one in self.topics[topic] if one.pointer > after]
        assert list(islice(self.client.tail(topic, after=after), len(expected))) == expected
        tail = self.client.tail(topic)
        if self.rng.random() < 0.3:
            self.kill(topic)
        before = len(self.topics[topic])
        self.publish(topic)
        new = self.topics[topic][before:]
        assert list(islice(tail, len(new))) == new

    def get(self, topic: str) -> None:
        """One record, or none."""
        pointer = self.pointer(topic)
        expected = [one for one in self.topics[topic] if one.pointer == pointer]
        if expected:
            assert self.client.get(topic, pointer) == expected[0]
        else:
            with refused("unknown_record"):
                self.client.get(topic, pointer)

    # -- topics and the broker --------------------------------------------------------------------------

    def trim(self, topic: str) -> None:
        """Only whole segments below a pointer go."""
        before = self.pointer(topic)
        removed = self.client.trim(topic, before)
        known = self.topics[topic]
        assert all(one.pointer < before for one in known[: removed.records])
        del known[: removed.records]
        self.trimmed[topic] += removed.records
        assert removed.first == (known[0].pointer if known else 0)

    def roll(self, topic: str) -> None:
        """Nothing changes for readers."""
        self.client.roll(topic)

    def update(self, topic: str) -> None:
        """Segments of another size."""
        limit = self.rng.randrange(20)
        assert self.client.update_topic(topic, count_limit=limit).settings["count_limit"] == limit

    def delete(self, topic: str) -> None:
        """It goes with all that it holds."""
        assert self.client.delete_topic(topic).records == len(self.topics.pop(topic))

    def describe(self, topic: str) -> None:
        """What is told of it."""
        info, known = self.client.topic(topic), self.topics[topic]
        assert (info.count, info.first_ordinal) == (len(known), self.trimmed[topic])
        assert info.first == (known[0].pointer if known else 0)
        assert info.last == known[-1].pointer if known else True

    def kill(self, topic: str) -> None:
        """The broker crashes."""
        self.broker.kill()
        self.broker.restart()

    def terminate(self, topic: str) -> None:
        """The broker ends in order."""
        assert self.broker.terminate() == 0
        self.broker.restart()

    # -- chance -----------------------------------------------------------------------------------------

    def value(self) -> bytes:
        """A value that no other record has."""
        return b"%d %s" % (next(self.values), self.rng.randbytes(self.rng.choice((0, 5, 300))))

    def pointer(self, topic: str) -> int:
        """One of a record, beside one, or none at all."""
        known = self.topics[topic]
        if not known or self.rng.random() < 0.1:
            return self.rng.choice((0, 1, 2**55))
        return self.rng.choice(known).pointer + self.rng.choice((0, 0, -1, 1))


def test_client_and_broker_do_what_the_model_does(
    start_broker: StartBroker, connect: Connect, rng: random.Random
) -> None:
    broker = start_broker(worker_timeout=0.05)
    client = connect(broker, timeout=60.0)
    life = Life(broker, client, rng)
    for _ in range(times(1, 150)):
        life.live(80)


# -- a wire that is cut at random ---------------------------------------------------------------------------


@contextmanager
def cutting(wires: list[Wire], rng: random.Random, progress: Callable[[], int]) -> Iterator[None]:
    """Cuts one of the wires again and again, whenever something has moved."""
    over = threading.Event()

    def work() -> None:
        seen = 0
        while not over.is_set():
            goal = seen + rng.randint(1, 400)
            eventually(
                lambda goal=goal: progress() >= goal or over.is_set(),  # type: ignore[misc]
                "it goes on",
                5 * DEADLINE_S,  # at the end it waits for those who read
            )
            seen = progress()
            rng.choice(wires).cut()

    with ThreadPoolExecutor() as pool:
        cutter = pool.submit(work)
        try:
            yield
        finally:
            over.set()
            cutter.result()


def test_cut_wires_lose_nothing_and_repeat_nothing(
    broker: BrokerProcess, client: Client, connect: Connect, topic: str, rng: random.Random
) -> None:
    """A producer, a publisher, a tail and a reader with a cursor, each on a wire that is cut at random."""
    streamed = [b"s%d" % number for number in range(times(10_000, 200_000))]
    single = [b"p%d" % number for number in range(times(100, 2_000))]
    total = len(streamed) + len(single)
    gaps: list[Gap] = []
    client.create_topic(topic, count_limit=2_000)
    with ExitStack() as wired:
        wires = [wired.enter_context(Wire(broker.url)) for _ in range(4)]
        writer, publisher, follower, reader = (connect(wire, timeout=60.0) for wire in wires)
        producer = writer.producer(topic, batch=20)
        tail = follower.tail(topic, on_gap=gaps.append)

        def stream() -> None:
            for value in streamed:
                producer.send(value)
            producer.close()

        def publish() -> None:
            for value in single:
                publisher.publish(topic, value)

        def read() -> list[Message]:
            found: list[Message] = []
            while len(found) < total:
                after = found[-1].pointer if found else 0
                found += reader.read(topic, after=after, limit=700, timeout=5.0, on_gap=gaps.append)
            return found

        with (
            ThreadPoolExecutor() as pool,
            cutting(wires, rng, lambda: producer.acknowledged),
        ):
            writing = [pool.submit(stream), pool.submit(publish)]
            tailing = pool.submit(lambda: list(islice(tail, total)))
            reading = pool.submit(read)
            for done in writing:
                done.result()
            tailed, found = tailing.result(), reading.result()
        assert sum(wire.cuts for wire in wires) > 5
    assert gaps == []
    assert tailed == found == client.read(topic, limit=ALL)
    values = [message.value for message in found]
    assert [value for value in values if value.startswith(b"s")] == streamed
    assert [value for value in values if value.startswith(b"p")] == single
