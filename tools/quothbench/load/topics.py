"""Topics: made for a benchmark under unique names, filled, and deleted again."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Self

import quoth
from quoth import NotFound
from quothbench.load import driver
from quothbench.load.driver import VALUE
from quothcli.printing.progress import Advance, progress
from quothwire import batch
from quothwire.errors import QuothError

STORED_BYTES = 20_000_000
"""Bytes that reads find: in the page cache, and less than one segment."""
STORED_BATCHES_MAX = 2_000
_PORTION = 128
"""Batches between two reports of progress."""


class Payload(NamedTuple):
    """The content of a call. records: messages of a call. size: bytes of a message."""

    records: int
    size: int

    @property
    def values(self) -> list[bytes]:
        """Return the values of the messages."""
        return [(VALUE * (self.size // len(VALUE) + 1))[: self.size]] * self.records


def fill(
    url: str, topic: str, values: Sequence[bytes], batches: int, advance: Advance, key_file: str = ""
) -> None:
    """Store the same batch so many times."""
    size = len(batch.encode(values))
    with driver.dealer(url, key_file) as socket:
        for begin in range(0, batches, _PORTION):
            portion = min(_PORTION, batches - begin)
            driver.keep_window(socket, driver.repeated(topic, values, portion))
            advance(portion * len(values), portion * size)


def cursors(client: quoth.Client, topic: str) -> list[int]:
    """Return the cursor in front of each batch of a topic."""
    lasts = [stored.last for stored in client.batches(topic)]
    return [0, *lasts[:-1]]


class BenchTopics:
    """The topics of a benchmark. Leaving the block deletes them, so its clients must have ended before."""

    def __init__(self, client: quoth.Client) -> None:
        self._client = client
        self._names: list[str] = []
        self._prefix = f"bench-{secrets.token_hex(4)}"
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.delete(self._names)
        except QuothError:
            if kind is None:  # or it would hide the first error
                raise

    def make(self, count: int = 1, durability: str = "written") -> list[str]:
        """Create so many topics and return their names. Raises the errors of `Client.create_topic`."""
        names = [f"{self._prefix}-{number}" for number in range(self._made, self._made + count)]
        self._made += count
        for name in names:
            self._names.append(name)
            self._client.create_topic(name, durability=durability)
        return names

    def fill(self, names: Sequence[str], payload: Payload) -> list[list[int]]:
        """Store records to read; return for each topic the cursors in front of its batches."""
        size = payload.records * payload.size
        batches = max(1, min(STORED_BATCHES_MAX, STORED_BYTES // size) // len(names))
        with progress("storing what is read") as advance:
            for name in names:
                fill(self._client.url, name, payload.values, batches, advance)
        return [cursors(self._client, name) for name in names]

    def delete(self, names: Sequence[str]) -> None:
        """Delete some of the topics, so that the disk has room for others."""
        for name in list(names):
            with suppress(NotFound):
                self._client.delete_topic(name)
            self._names.remove(name)
