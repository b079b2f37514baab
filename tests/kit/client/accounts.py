"""Producers that send streams of batches through everything, and the comparison with a topic.

A stream is a row of batches to one topic, numbered from 1. What is in a batch follows from its stream and its
number: each record has a key that no other has, and a value of any size that follows from the key. So an
account needs only say which batches were sent, and which were acknowledged with which pointer.

Each stream is sent by a thread. What a broker must never say to it, whatever died meanwhile, ends the stream
with an error, and so fails the test.
"""

from __future__ import annotations

import random
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, groupby, pairwise
from typing import NamedTuple, Self

import quoth
from kit.deadlines import pause
from quoth import Ack, Batch, BrokerFailure, Client, Disconnected, Gap, Message, Unavailable
from quothwire.protocol.messages import TopicInfo

SENT_ROWS = 16
"""Records in each batch of a stream that a `quoth.Producer` sends, which cuts its batches by their number."""

_ROWS = (1, 1, 1, 2, 3, 5, 10, 20, 40)


# -- what is in a batch -------------------------------------------------------------------------------------


class Planned(NamedTuple):
    """The records of a batch."""

    keys: list[bytes]
    values: list[bytes]


@lru_cache(512)
def planned(stream: str, number: int) -> Planned:
    """Return the contents of a batch of a stream, always the same."""
    chance = random.Random(f"{stream} {number}")
    rows = SENT_ROWS
    if not stream.startswith("send"):
        rows = 1_000 if chance.random() < 0.01 else chance.choice(_ROWS)
    keys = [b"%s/%d/%d" % (stream.encode(), number, row) for row in range(rows)]
    sizes = [chance.choice((0, 1, 9, 60, 200)) for _ in keys]
    if chance.random() < 0.05:
        sizes[chance.randrange(rows)] = chance.randrange(40_000)
    values = [(key * (size // len(key) + 1))[:size] for key, size in zip(keys, sizes, strict=True)]
    return Planned(keys, values)


def place_of(key: bytes) -> tuple[str, int, int]:
    stream, number, row = key.split(b"/")
    return stream.decode(), int(number), int(row)


# -- what a producer knows ----------------------------------------------------------------------------------


@dataclass
class Account:
    """The outcomes of the batches of one stream. stored: first pointers by the numbers of batches.

    A batch is noted as sent before it is sent, an answer once it is there.
    """

    topic: str
    stream: str
    sent: list[int] = field(default_factory=list)
    stored: dict[int, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)

    @property
    def unanswered(self) -> set[int]:
        return {*self.sent} - {*self.stored} - self.refused


# -- what a reader saw --------------------------------------------------------------------------------------


@dataclass
class Seen:
    """The records and gaps of a reader, in order. Values are compared at once and not kept."""

    pointers: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def take(self, message: Message) -> None:
        assert message.key is not None, message
        stream, number, row = place_of(message.key)
        assert planned(stream, number).values[row] == message.value, f"{message.key!r} holds another value"
        self.pointers.append(message.pointer)
        self.keys.append(message.key)

    def batches(self) -> Iterator[tuple[str, int, int]]:
        """Stream, number and first pointer of each batch, all of whose records have to be there in order."""
        places = [(*place_of(key), pointer) for key, pointer in zip(self.keys, self.pointers, strict=True)]
        for (stream, number), group in groupby(places, key=lambda place: place[:2]):
            rows = list(group)
            count, first = len(planned(stream, number).keys), rows[0][3]
            expected = [(stream, number, row, first + row) for row in range(count)]
            assert rows == expected, f"batch {number} of {stream} is not whole: {len(rows)} of {count} rows"
            yield stream, number, first


def read_everything(client: Client, topic: str) -> Seen:
    """Everything that a topic holds now, and that its batches follow each other without a hole."""
    seen = Seen()
    found: list[Batch] = list(client.batches(topic, on_gap=seen.gaps.append))
    assert not seen.gaps, seen.gaps
    assert all(one.ordinal + len(one) == other.ordinal for one, other in pairwise(found))
    for one in found:
        for message in one.messages():
            seen.take(message)
    return seen


# -- the comparison -----------------------------------------------------------------------------------------


def compare(accounts: Sequence[Account], tail: Seen, now: Seen, info: TopicInfo, *, trims: bool) -> None:
    """Check that a topic holds what its producers know as stored, and nothing else.

    tail: what one saw that began before the first record. now: what is there. trims: it has a retention, so
    that a prefix may be gone, as a gap of the tail if it had not seen it.
    """
    start = bisect_left(tail.pointers, now.pointers[0])
    assert (tail.pointers[start:], tail.keys[start:]) == (now.pointers, now.keys), "two readers disagree"
    assert all(a < b for a, b in pairwise(tail.pointers))
    assert (info.count, info.first, info.last) == (len(now.keys), now.pointers[0], now.pointers[-1])
    missed = sum(gap.records for gap in tail.gaps)
    assert info.first_ordinal + info.count == len(tail.keys) + missed
    assert trims or (not missed and info.first_ordinal == 0)
    assert info.problem == ""
    stored: dict[str, dict[int, int]] = {}
    for stream, number, first in tail.batches():
        assert number not in stored.setdefault(stream, {}), f"batch {number} of {stream} is there twice"
        stored[stream][number] = first
    assert stored.keys() <= {one.stream for one in accounts}
    unseen = _Unseen(tail.gaps, now.pointers[0])
    for one in accounts:
        _compare_stream(one, stored.get(one.stream, {}), unseen)
    unseen.check()


class _Unseen:
    """The gaps of a tail, and what can have been in them."""

    def __init__(self, gaps: list[Gap], oldest: int) -> None:
        self._gaps = gaps
        self._certain = [0] * len(gaps)
        self._possible = 0
        for gap in gaps:
            assert (gap.reason, gap.records > 0, gap.next <= oldest) == ("trimmed", True, True), gap
        assert all(one.next <= other.after + 1 for one, other in pairwise(gaps))

    def take(self, first: int, records: int) -> None:
        rows = [
            row for row, gap in enumerate(self._gaps) if gap.after < first and first + records - 1 < gap.next
        ]
        assert rows, f"{records} records from {first} on were acknowledged and are not there"
        self._certain[rows[0]] += records

    def may_hold(self, records: int) -> None:
        """An unanswered batch that the tail has not seen."""
        self._possible += records

    def check(self) -> None:
        surplus = [gap.records - known for gap, known in zip(self._gaps, self._certain, strict=True)]
        assert all(more >= 0 for more in surplus), (self._gaps, self._certain)
        assert sum(surplus) <= self._possible, (self._gaps, self._certain)


def _compare_stream(account: Account, stored: dict[int, int], unseen: _Unseen) -> None:
    """Check that each batch has its acknowledged pointer, and the order."""
    label = f"{account.topic} {account.stream}"
    assert stored.keys() <= {*account.sent}, f"{label}: batches that were never sent"
    assert not stored.keys() & account.refused, f"{label}: refused batches are stored"
    for number, first in account.stored.items():
        if number in stored:
            assert stored[number] == first, f"{label}: batch {number} is at {stored[number]}, not at {first}"
        else:
            unseen.take(first, len(planned(account.stream, number).keys))
    for number in account.unanswered - stored.keys():
        unseen.may_hold(len(planned(account.stream, number).keys))
    in_order = not account.stream.startswith("publish")  # there one that was given up may still arrive, later
    places = stored | account.stored if in_order else account.stored
    assert all(places[one] < places[other] for one, other in pairwise(sorted(places))), f"{label}: order"


OUTAGE_MAX_S = 60.0
"""How long a broker may be away, kills in a row included."""
PAUSE_MAX_S = 0.05

Over = Callable[[], bool]


def publish(client: Client, account: Account, over: Over) -> None:
    """One batch after the other, each retried by `Client.publish` with a short or a long timeout."""
    chance = random.Random(account.stream)
    for number in count(1):
        if over():
            return
        keys, values = planned(account.stream, number)
        account.sent.append(number)
        try:
            timeout = chance.choice((0.2, OUTAGE_MAX_S))
            ack = client.publish(account.topic, values, key=keys, timeout=timeout)
        except (Disconnected, BrokerFailure):
            continue
        except Unavailable:
            account.refused.add(number)
        else:
            assert (ack.count, ack.last) == (len(values), ack.first + len(values) - 1)
            account.stored[number] = ack.first
        pause(chance.random() * PAUSE_MAX_S)


def send(client: Client, account: Account, over: Over) -> None:
    """A `quoth.Producer`, whose batches are full each time, so that all know what is in them."""
    chance = random.Random(account.stream)
    waiting: deque[tuple[int, Future[Ack]]] = deque()
    options = {"batch": SENT_ROWS, "linger": OUTAGE_MAX_S, "max_buffer": 60 * SENT_ROWS}
    with client.producer(account.topic, timeout=OUTAGE_MAX_S, **options) as producer:  # type: ignore[arg-type]
        for number in count(1):
            if over():
                break
            keys, values = planned(account.stream, number)
            account.sent.append(number)
            waiting.append((number, producer.future()))
            for key, value in zip(keys, values, strict=True):
                producer.send(value, key=key)
            _settle(waiting, account)
            pause(chance.random() * PAUSE_MAX_S)
    _settle(waiting, account)
    assert not waiting


def _settle(waiting: deque[tuple[int, Future[Ack]]], account: Account) -> None:
    while waiting and waiting[0][1].done():
        number, future = waiting.popleft()
        ack = future.result()
        assert ack.count == SENT_ROWS
        account.stored[number] = ack.first


class Streams:
    """The streams of some accounts, over one client. The name of a stream begins with what sends it."""

    def __init__(self, url: str, accounts: Sequence[Account]) -> None:
        self._over = threading.Event()
        self._stack = ExitStack()
        client = self._stack.enter_context(quoth.connect(url, timeout=OUTAGE_MAX_S))
        pool = self._stack.enter_context(ThreadPoolExecutor(len(accounts)))
        self._running = [
            pool.submit(send if one.stream.startswith("send") else publish, client, one, self._over.is_set)
            for one in accounts
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        self._stack.close()
        if kind is None:
            self.check()

    def check(self) -> None:
        for stream in self._running:
            if stream.done():
                stream.result()
