"""Reads page by page: a read that goes on where another one has ended goes on with its cursor.

The first read of a topic fetches what it returns. The next one finds the cursor, what was fetched beyond the
page, and the fetch that was sent ahead when the page was returned. Each fetch brings up to twice as many
records as the one before, so in vain no more is fetched than was read.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from quoth.batch import Batch, Messages
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import OnGap
from quoth.reader import RECORDS_MAX, RecordReader

KEPT_S = 0.25
"""A read may return records that were there so long ago, and may have been removed since."""
KEPT_MAX = 4
"""Page readers that a client keeps: each may hold two fetches."""


class ReadOptions(NamedTuple):
    """The arguments of `read`, checked.

    after: a cursor. is_time: it was given as a time. end: the last pointer to read. limit: the most records.
    wait: seconds to wait for the first one.
    """

    topic: str
    after: int
    is_time: bool
    end: int
    limit: int
    wait: float
    on_gap: OnGap | None


class PageReader:
    """Reads one topic page by page. Belongs to one call at a time.

    goes_on: a second page is read, so it fetches ahead. place: where its client finds the answer to what was
    fetched ahead. kept_until: by the monotonic clock.
    """

    def __init__(self, reader: RecordReader) -> None:
        self.goes_on = False
        self.place: Any = None
        self.kept_until = 0.0
        self._reader = reader
        self._records = 0
        self._found: Iterator[Batch] = iter(())
        self._batch: Batch | None = None
        self._row = 0
        self._unsent: RequestState | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> PageReader:
        """Return a reader that begins with the page of these options."""
        reader = RecordReader(options.topic, options.after)
        reader.is_time = options.is_time
        return cls(reader)

    @property
    def after(self) -> int:
        """The pointer up to which everything was returned or reported."""
        return self._next - 1

    @property
    def _next(self) -> int:
        """The pointer below which there is no further record."""
        return self._reader.after + 1 if self._batch is None else self._batch.first + self._row

    def read(self, options: ReadOptions, timeout: float) -> ClientCall[Messages]:
        """Read one page, which begins where the reader is. timeout: seconds that a fetch may take."""
        self._reader.report_to(options.on_gap)
        parts: list[Batch] = []
        left = options.limit
        waiting_until = deadline_in(options.wait) if options.wait else 0.0
        while True:
            left -= self._take(left, options.end, parts)
            if not left or self._next > options.end:
                break
            wait = 0.0 if parts or not options.wait else max(0.0, waiting_until - time.monotonic())
            self._found = yield from self._fetch(left, wait, timeout)
            if not self._reader.has_more and (parts or time.monotonic() >= waiting_until):
                break
        return Messages(parts)

    def take_unsent(self) -> RequestState | None:
        """Return the fetch to send ahead now, which the next page may need; None if there is no new one."""
        request, self._unsent = self._unsent, None
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
            until = min(len(one.values), row + left, max(row, end + 1 - one.first))
            parts.append(one if until - row == len(one.values) else one.part(row, until))
            left -= until - row
            self._row = until
            if until == len(one.values):
                self._batch = None
        return records - left

    def _fetch(self, records: int, wait: float, timeout: float) -> ClientCall[Iterator[Batch]]:
        """Fetch for a page that lacks so many records."""
        reader = self._reader
        if not self.goes_on or not reader.has_more:  # else there is nothing to wait for yet
            self._records = max(self._records, records)
            reader.prefetch = self._unsent = None
            return (yield from reader.fetch(wait=wait, timeout=timeout, records_max=records))
        self._records = min(max(2 * self._records, records), RECORDS_MAX)
        found = yield from reader.fetch_ahead(timeout=timeout, records_max=self._records)
        self._unsent = reader.prefetch
        return found


class ReadAhead:
    """The page readers that the reads of one client may go on with. For any thread.

    free: frees the place of one that is dropped.
    """

    def __init__(self, free: Callable[[Any], None]) -> None:
        self._free = free
        self._kept: OrderedDict[tuple[str, int], PageReader] = OrderedDict()

    def reader_of(self, options: ReadOptions) -> PageReader:
        """Take the reader whose last page ended where this one begins, or make a new one."""
        found = None if options.is_time else self._kept.pop((options.topic, options.after), None)
        if found is not None and time.monotonic() < found.kept_until:
            found.goes_on = True
            return found
        if found is not None:
            self.drop(found)
        return PageReader.of(options)

    def keep(self, reader: PageReader, options: ReadOptions, found: Messages) -> None:
        """Keep a reader if the page is full, so that another one may follow; else drop it."""
        dropped: PageReader | None = reader
        if options.limit and len(found) == options.limit:
            reader.kept_until = time.monotonic() + KEPT_S
            key = options.topic, reader.after
            dropped = self._kept.pop(key, None)
            self._kept[key] = reader
            if len(self._kept) > KEPT_MAX:
                self._drop_oldest()
        if dropped is not None:
            self.drop(dropped)

    def drop(self, reader: PageReader) -> None:
        """Free the place of a reader that no read goes on with."""
        if reader.place is not None:
            self._free(reader.place)

    def clear(self) -> None:
        """Drop all of them, since the client is about to remove records."""
        while self._kept:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        try:
            _, dropped = self._kept.popitem(last=False)
        except KeyError:  # another thread has dropped it
            return
        self.drop(dropped)
