"""The ways in which a client reads a topic: each tells records behind a cursor up to a last one, and gaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from quoth import Client, Gap, Message

Told = tuple[list[Message], list[Gap]]


class Way(Protocol):
    """One of them."""

    def __call__(self, client: Client, topic: str, end: bytes, after: int = 0) -> Told:
        """The records above `after`, up to the one with the value `end`, and the gaps between them."""


GAPS_MAX = 1_000
"""A reader with more of them is in an endless loop."""


class Gaps(list[Gap]):
    """The reported gaps."""

    def take(self, gap: Gap) -> None:
        """See `OnGap`."""
        assert len(self) < GAPS_MAX, gap
        self.append(gap)


def by_read(client: Client, topic: str, end: bytes, after: int = 0) -> Told:
    """All at once."""
    gaps = Gaps()
    return _before(client.read(topic, after=after, on_gap=gaps.take), end), gaps


def by_portions(client: Client, topic: str, end: bytes, after: int = 0) -> Told:
    """Two records at a time: each portion begins at a cursor without an ordinal."""
    gaps = Gaps()
    found: list[Message] = []
    while portion := client.read(topic, after=after, limit=2, on_gap=gaps.take):
        found += portion
        after = found[-1].pointer
    return _before(found, end), gaps


def by_batches(client: Client, topic: str, end: bytes, after: int = 0) -> Told:
    """Batch by batch."""
    gaps = Gaps()
    batches = client.batches(topic, after=after, on_gap=gaps.take)
    return _before((message for one in batches for message in one.messages()), end), gaps


def by_tail(client: Client, topic: str, end: bytes, after: int = 0) -> Told:
    """As they come."""
    gaps = Gaps()
    return _before(client.tail(topic, after=after, on_gap=gaps.take), end), gaps


WAYS: tuple[Way, ...] = (by_read, by_portions, by_batches, by_tail)


def _before(messages: Iterable[Message], end: bytes) -> list[Message]:
    """All up to the record with the value `end`, which has to be there."""
    found: list[Message] = []
    for message in messages:
        if message.value == end:
            return found
        assert not found or found[-1].pointer < message.pointer, message
        found.append(message)
    raise AssertionError("the end is missing")
