"""Puts and reads through Poe's port are those of the native client, whatever is done on the same topics."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter

import quoth
from kit.broker.brokers import BrokerProcess
from kit.gateways.poe import PoePeer, poe_url, read_frame
from kit.scale import times
from quothwire.pointer import POINTER_MAX

Records = list[tuple[int, bytes]]

TOPICS = ("a", "gr\u00f6\u00dfe", "c")
OPERATIONS = times(800, 10_000)


class Operations:
    """Random operations on the same topics by either protocol, compared with a model and with each other."""

    def __init__(self, peer: PoePeer, client: quoth.Client, rng: random.Random) -> None:
        self._peer = peer
        self._client = client
        self._rng = rng
        self._model: dict[str, Records] = {topic: [] for topic in TOPICS}

    def run(self) -> None:
        acts = self._put, self._publish, self._read, self._read_pipelined, self._roll
        for _ in range(OPERATIONS):
            (act,) = self._rng.choices(acts, (30, 30, 60, 10, 1))
            act(self._rng.choice(TOPICS))
        for topic in TOPICS:
            self._compare_all(topic)

    def _values(self, least: int) -> list[bytes]:
        sizes = self._rng.choices(
            (least, 1, 20, 2_000, 100_000), (1, 4, 8, 3, 0.1), k=self._rng.randint(1, 20)
        )
        return [self._rng.randbytes(size) for size in sizes]

    def _put(self, topic: str) -> None:
        values = self._values(1)
        last = self._peer.put(topic, *values)
        self._store(topic, last - len(values) + 1, values)

    def _publish(self, topic: str) -> None:
        """Publish with keys and headers now and then, which Poe's clients do not get."""
        values = self._values(0)
        more = {"key": b"k", "headers": {"h": b"1"}} if self._rng.random() < 0.3 else {}
        ack = self._client.publish(topic, values, **more)  # type: ignore[arg-type]
        self._store(topic, ack.first, values)

    def _store(self, topic: str, first: int, values: list[bytes]) -> None:
        records = self._model[topic]
        assert not records or records[-1][0] < first
        records += enumerate(values, first)

    def _read(self, topic: str) -> None:
        (limit,) = self._rng.choices((2, 3, 10, 100, 1_000, 2**32 - 1), (50, 50, 50, 50, 5, 2))
        after = self._after(topic)
        self._compare(topic, after, limit, self._peer.read(topic, after, limit))

    def _read_pipelined(self, topic: str) -> None:
        reads = [(self._after(topic), self._rng.choice((2, 5, 50))) for _ in range(5)]
        self._peer.send(b"".join(read_frame(topic.encode(), *read) for read in reads))
        for after, limit in reads:
            self._compare(topic, after, limit, self._peer.records())

    def _roll(self, topic: str) -> None:
        if self._model[topic]:
            self._client.roll(topic)

    def _after(self, topic: str) -> int:
        """Return a pointer to read behind: of a record, beside one, of the end, or any."""
        records = self._model[topic]
        if not records or self._rng.random() < 0.05:
            return self._rng.choice((0, 1, POINTER_MAX, POINTER_MAX - 1))
        pointer = self._rng.choice(records[-200:] if self._rng.random() < 0.5 else records)[0]
        return pointer + self._rng.choice((-1, 0, 0, 1))

    def _compare(self, topic: str, after: int, limit: int, found: Records) -> None:
        records = self._model[topic]
        begin = bisect_right(records, after, key=itemgetter(0))
        expected = records[begin : begin + min(limit, 50_000)]
        assert found == expected[: len(found)]
        if len(found) < len(expected):
            assert sum(11 + len(value) for _, value in expected[: len(found) + 1]) > 2**20
        if records:
            native = self._client.read(topic, after=after, limit=len(found), on_gap=lambda _: None)
            assert [(one.pointer, one.value) for one in native] == found

    def _compare_all(self, topic: str) -> None:
        assert [*self._all(topic)] == self._model[topic]

    def _all(self, topic: str) -> Iterator[tuple[int, bytes]]:
        after = 0
        while found := self._peer.read(topic, after, 1_000):
            yield from found
            after = found[-1][0]


def test_random_operations_through_poe_and_the_native_client_give_the_same(
    poe_broker: BrokerProcess, client: quoth.Client, rng: random.Random
) -> None:
    """Fewer than 10,000 unless QUOTH_LONG is set."""
    with PoePeer(poe_url(poe_broker)) as peer:
        Operations(peer, client, rng).run()
