"""Client and broker together against a plain model: lists of records, whatever dies or is cut meanwhile.

QUOTH_LONG=1 runs many more lives; QUOTH_SEED repeats a run that failed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice

from kit.broker.brokers import BrokerProcess
from kit.broker.proxies import Wire
from kit.client.records import Connect
from kit.deadlines import DEADLINE_S, eventually
from kit.scale import times
from quoth import Client, Gap, Message

ALL = 1_000_000


# -- a wire that is cut at random ---------------------------------------------------------------------------


@contextmanager
def cut_at_random(wires: list[Wire], rng: random.Random, progress: Callable[[], int]) -> Iterator[None]:
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
            cut_at_random(wires, rng, lambda: producer.acknowledged),
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
