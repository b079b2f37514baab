"""Scans records for a text: a bounded part of a topic at a time, so that a search never runs away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from quoth.batch import Batch
from quoth.message import Gap, Message
from quothweb.brokers import BrokerClient
from quothwire.pointer import POINTER_MAX

SCAN_RECORDS_MAX = 500_000
SCAN_BYTES_MAX = 256 * 2**20
SCAN_S_MAX = 5.0
FOUND_MAX = 100
"""Records, bytes, seconds and hits after which one part of a search ends; the next part goes on there."""
PORTION = 5_000
"""Records after which other tasks of the event loop run."""
PLACES = ("anywhere", "value", "key", "headers")


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A text to look for. place: one of `PLACES`. An empty text matches every record."""

    text: str
    place: str = "anywhere"
    ignores_case: bool = False

    def matcher(self) -> Callable[[Message], bool]:
        """Return the function that decides about a record."""
        wanted = self.text.encode("utf-8", "surrogateescape")
        if self.ignores_case:
            wanted = wanted.lower()

        def has(part: bytes | None) -> bool:
            return part is not None and wanted in (part.lower() if self.ignores_case else part)

        def in_headers(message: Message) -> bool:
            return any(has(name.encode()) or has(value) for name, value in message.headers.items())

        return {
            "value": lambda one: has(one.value),
            "key": lambda one: has(one.key),
            "headers": in_headers,
            "anywhere": lambda one: has(one.value) or has(one.key) or in_headers(one),
        }[self.place]


@dataclass(slots=True)
class RecordScan:
    """A search in (after, until]. after: moves on with it. is_over: everything up to `until` was scanned."""

    query: RecordQuery
    topic: str
    after: int
    until: int = POINTER_MAX
    records: int = 0
    bytes: int = 0
    found: list[Message | Gap] = field(default_factory=list)
    is_over: bool = False

    async def go_on(self, client: BrokerClient) -> None:
        """Scan the next part."""
        records_max, bytes_max = self.records + SCAN_RECORDS_MAX, self.bytes + SCAN_BYTES_MAX
        found_max, deadline = len(self.found) + FOUND_MAX, time.monotonic() + SCAN_S_MAX
        matches = self.query.matcher()
        before = min(self.until + 1, POINTER_MAX)
        batches = client.batches(self.topic, after=self.after, until=before, on_gap=self.found.append)
        try:
            async for batch in batches:
                for portion in _portions(batch, self.until):
                    self._take(portion, matches, found_max)
                    await asyncio.sleep(0)
                    is_full = self.records >= records_max or self.bytes >= bytes_max
                    if is_full or len(self.found) >= found_max or time.monotonic() >= deadline:
                        return
        finally:
            await batches.aclose()
        self.is_over = True

    def _take(self, portion: Batch, matches: Callable[[Message], bool], found_max: int) -> None:
        for message in portion:
            self.records += 1
            self.bytes += len(message.value)
            self.after = message.pointer
            if matches(message):
                self.found.append(message)
                if len(self.found) >= found_max:
                    return


def _portions(batch: Batch, until: int) -> Iterator[Batch]:
    """Yield the records of a batch up to a pointer, some at a time."""
    end = min(len(batch), until + 1 - batch.first)
    for begin in range(0, max(0, end), PORTION):
        yield batch.part(begin, min(end, begin + PORTION))
