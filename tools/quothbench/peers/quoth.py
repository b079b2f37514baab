"""Quoth: the calls of its client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import quoth
from quothbench.load.clients import Ready
from quothbench.load.driver import VALUE
from quothbench.load.servers import own_broker
from quothbench.peers.work import CALL, SMALL_ROUNDS, SMALL_STORED, Peer, Way, Work

PAGE = 10_000
ROUNDS = 4
"""How often `batches` reads everything in one measurement."""
STORED = 500_000

_SENT = "sent"
_PUBLISHED = "published"

Write = Callable[[quoth.Client, str, int], None]
"""Stores so many messages in a topic."""


@contextmanager
def _serving(directory: Path) -> Iterator[str]:
    with own_broker(directory) as broker:
        yield broker.url


def _store(url: str, sent: int = STORED, published: int = SMALL_STORED) -> None:
    """Store the messages to read, sent one by one and, in another topic, published in calls."""
    with quoth.connect(url) as client:
        send(client, _SENT, sent)
        _publish(client, _PUBLISHED, published)


def _publish(client: quoth.Client, topic: str, messages: int) -> None:
    for _ in range(messages // CALL):
        client.publish(topic, [VALUE] * CALL)


def send(client: quoth.Client, topic: str, messages: int) -> None:
    """Send messages one by one, and wait until all are stored."""
    with client.producer(topic) as producer:
        for _ in range(messages):
            producer.send(VALUE)


def _write(ready: Ready, url: str, messages: int, write: Write) -> float:
    """Write to a topic that is deleted at the end."""
    with quoth.connect(url) as client:
        client.create_topic("measured")
        ready()
        began = perf_counter()
        write(client, "measured", messages)
        took = perf_counter() - began
        assert client.topic("measured").count == messages
        client.delete_topic("measured")
    return took


def _batches(ready: Ready, url: str, messages: int) -> float:
    with quoth.connect(url) as client:
        ready()
        began = perf_counter()
        counted = sum(len(batch) for _ in range(ROUNDS) for batch in client.batches(_SENT))
        took = perf_counter() - began
    assert counted == messages
    return took


def _read(ready: Ready, url: str, messages: int, topic: str, page: int, rounds: int) -> float:
    """Read page by page, and look at the value of each message."""
    with quoth.connect(url) as client:
        ready()
        counted, began = 0, perf_counter()
        for _ in range(rounds):
            after = 0
            while found := client.read(topic, after=after, limit=page):
                for message in found:
                    counted += message.value == VALUE
                after = message.pointer
        took = perf_counter() - began
    assert counted == messages
    return took


QUOTH = Peer(
    "written",
    "the operating system has it; a power cut may take the last 50 ms",
    {},
    lambda: "",
    lambda: "",
    _serving,
    _store,
    (
        Way(Work.PUBLISH, "", 100_000, _write, (_publish,)),
        Way(Work.SEND, "", 400_000, _write, (send,)),
        Way(Work.BATCHES, "", ROUNDS * STORED, _batches),
        Way(Work.READ, "", STORED, _read, (_SENT, PAGE, 1)),
        Way(Work.READ_SMALL, "", SMALL_ROUNDS * SMALL_STORED, _read, (_PUBLISHED, CALL, SMALL_ROUNDS)),
    ),
)
