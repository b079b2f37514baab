"""Reads page by page: a read that goes on where another one has ended goes on with its cursor.

The first read of a topic fetches what it returns. The next one finds the cursor, what was fetched beyond the
page, and the fetch that was sent ahead when the page was returned. Each fetch asks for twice as many records
as the one before, as long as they are read soon: at most three times as many are fetched in vain as are read.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from quoth.batch import Batch, Messages
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import OnGap
from quoth.reader import RECORDS_MAX, RecordReader
from quothwire.protocol.messages import FETCH_BYTES_MAX

KEPT_S = 0.25
"""A read returns no records that were fetched longer ago: they may have been removed since."""
SOON_S = KEPT_S / 4
"""Records that were read in this time are followed by twice as many."""
KEPT_MAX = 4
"""Page readers that a client keeps. Each holds a fetch, and another one on its way."""


class ReadOptions(NamedTuple):
    """The arguments of `read`, checked.

    after: a cursor. is_time: it was given as a time. end: the last pointer to read. limit: the most records.
    wait: seconds to wait for the first one. durability: as of a fetch.
    """

    topic: str
    after: int
    is_time: bool
    end: int
    limit: int
    wait: float
    on_gap: OnGap | None
    durability: str = ""

    @property
    def place(self) -> tuple[str, str, int]:
        """The place where a read begins: one that ended there, and saw as much, can go on with it."""
        return self.topic, self.durability, self.after


class PageReader:
    """Reads one topic page by page. Belongs to one call at a time.

    goes_on: a second page is read, so it fetches ahead. is_full: its last page has as many records as it may.
    place: where its client finds the answer to what was fetched ahead. generation: see `ReadAhead`.
    """

    def __init__(self, options: ReadOptions, generation: int = 0) -> None:
        self.goes_on = self.is_full = False
        self.place: Any = None
        self.generation = generation
        self._reader = RecordReader(options.topic, options.after)
        self._reader.is_time, self._reader.durability = options.is_time, options.durability
        self._records = 0
        self._found: Iterator[Batch] = iter(())
        self._batch: Batch | None = None
        self._row = 0
        self._fetched_at = self._sent_at = 0.0
        self._is_sent = False

    @property
    def after(self) -> int:
        """The pointer up to which everything was returned or reported."""
        return self._next - 1

    @property
    def _next(self) -> int:
        """The pointer below which there is no further record."""
        return self._reader.after + 1 if self._batch is None else self._batch.first + self._row

    @property
    def is_usable(self) -> bool:
        """True if another page may follow: what it has is little, and was fetched just now."""
        is_young = time.monotonic() - self._fetched_at < KEPT_S
        return self.is_full and is_young and self._reader.fetched_bytes <= FETCH_BYTES_MAX

    @property
    def is_ahead(self) -> bool:
        """True if there is a fetch ahead of the last page, sent or not."""
        return self._reader.prefetch is not None

    def read(self, options: ReadOptions, timeout: float) -> ClientCall[Messages]:
        """Read one page, which begins where the reader is. timeout: seconds that a fetch may take."""
        parts: list[Batch] = []
        left = options.limit
        waiting_until = deadline_in(options.wait) if options.wait else 0.0
        self._reader.report_to(options.on_gap)
        try:
            while True:
                left -= self._take(left, options.end, parts)
                if not left or self._next > options.end:
                    break
                wait = 0.0 if parts or not options.wait else max(0.0, waiting_until - time.monotonic())
                self._found = yield from self._fetch(left, wait, timeout)
                if not self._reader.has_more and (parts or time.monotonic() >= waiting_until):
                    break
        finally:
            self._reader.report_to(None)  # it may lead to the client, which keeps this reader
        self.is_full = bool(options.limit) and not left
        return Messages(parts)

    def send_ahead(self) -> RequestState | None:
        """Return the fetch for the next page that is to be sent now, None if there is no new one."""
        request = self._reader.prefetch
        if request is None or self._is_sent or not self.is_usable:
            return None
        self._is_sent, self._sent_at = True, time.monotonic()
        return request

    def _take(self, records: int, end: int, parts: list[Batch]) -> int:
        """Add up to so many records that are at hand, none behind the pointer `end`; return their number."""
        left = records
        while left and self._next <= end:
            if self._batch is None:
                self._batch, self._row = next(self._found, None), 0
                if self._batch is None:
                    break
            one, row = self._batch, self._row
            until = min(len(one.values), row + left, end + 1 - one.first)
            if until <= row:
                break
            parts.append(one if until - row == len(one.values) else one.part(row, until))
            left -= until - row
            self._row = until
            if until == len(one.values):
                self._batch = None
        return records - left

    def _fetch(self, records: int, wait: float, timeout: float) -> ClientCall[Iterator[Batch]]:
        """Fetch for a page that lacks so many records."""
        reader, now = self._reader, time.monotonic()
        if not self._is_sent:
            reader.prefetch = None
        if not self.goes_on or not reader.has_more:  # else there is nothing to wait for yet
            self._records, self._fetched_at = max(self._records, records), now
            reader.prefetch = None
            return (yield from reader.fetch(wait=wait, timeout=timeout, records_max=records))
        if now - self._fetched_at < SOON_S:
            self._records = min(2 * self._records, RECORDS_MAX)
        self._records = max(self._records, records)
        self._fetched_at = now if reader.prefetch is None else self._sent_at
        self._is_sent = False
        return (yield from reader.fetch_ahead(timeout=timeout, records_max=self._records))


class ReadAhead:
    """The page readers that the reads of one client may go on with. For any thread.

    free: frees the place of one that is dropped.
    """

    def __init__(self, free: Callable[[Any], None]) -> None:
        self._free = free
        self._kept: OrderedDict[tuple[str, str, int], PageReader] = OrderedDict()
        self._generation = 0
        """Rises when all are dropped: readers that are in use then are of an older one."""

    @contextmanager
    def reader_of(self, options: ReadOptions) -> Iterator[PageReader]:
        """Lend the reader whose last page ended where this one begins, or a new one, to one read."""
        reader = None if options.is_time else self._kept.pop(options.place, None)
        if reader is not None and self._may_go_on(reader):
            reader.goes_on = True
        else:
            self._drop(reader)
            reader = PageReader(options, self._generation)
        dropped: PageReader | None = reader
        try:
            yield reader
            if self._may_go_on(reader):
                kept = self._kept.setdefault(options._replace(after=reader.after).place, reader)
                dropped = reader if kept is not reader else None
        finally:
            self._drop(dropped)
        self._drop_useless()
        while len(self._kept) > KEPT_MAX:
            self._drop_oldest()

    def clear(self) -> None:
        """Drop all of them, those in use too: the client may have removed records, or is closed."""
        self._generation += 1
        while self._kept:
            self._drop_oldest()

    def _may_go_on(self, reader: PageReader) -> bool:
        return reader.is_usable and reader.generation == self._generation

    def _drop_useless(self) -> None:
        with suppress(RuntimeError):  # another thread has changed the dictionary: it does the same
            for key in [key for key, reader in self._kept.items() if not reader.is_usable]:
                self._drop(self._kept.pop(key, None))

    def _drop_oldest(self) -> None:
        try:
            _, dropped = self._kept.popitem(last=False)
        except KeyError:  # another thread has dropped it
            return
        self._drop(dropped)

    def _drop(self, reader: PageReader | None) -> None:
        if reader is not None and reader.place is not None:
            self._free(reader.place)
