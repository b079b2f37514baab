"""Reads a log beside its writer, which may be in another process, or dead.

with Reader("/var/lib/device/readings") as reader:
    for record in reader:           # the records that are there now
        print(record.pointer, record.value)
    for record in reader.tail():    # and those that will come, for ever
        print(record.pointer, record.value)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import length_hint
from pathlib import Path

from quothlog.reading.log_batch import LogBatch
from quothlog.reading.tailer import Missing, Tailer
from quothwire import batch
from quothwire.batch import DecodedBatch, Stored
from quothwire.closing import Closeable
from quothwire.record import Record, records_in

log = logging.getLogger("quothlog")


def log_missing(missing: Missing) -> None:
    """Log missing records as a warning, unless the application says otherwise."""
    count = "some" if missing.records < 0 else str(missing.records)
    log.warning(
        "%s records are missing reason=%s after=%d next=%d %s",
        count, missing.reason, missing.after, missing.next, missing.text,
    )  # fmt: skip


class Reader(Closeable):
    """Records behind a cursor, oldest first. One thread at a time; as many readers as you like.

    It takes no lock and changes nothing, so it needs no writer and disturbs none. What has been written may
    be read before it is synced: a loss of power may take it then. So may a full disk, of what was appended
    as several batches at once, which `Writer` and `Log.append` do not do.
    """

    def __init__(
        self,
        directory: str | Path,
        after: int = 0,
        *,
        on_missing: Callable[[Missing], None] = log_missing,
    ) -> None:
        """after: a pointer, exclusive; 0: from the oldest record on. on_missing: called with records that are
        gone. An empty directory is an empty log. Raises FileNotFoundError if there is no such directory, and
        `RequestError` ``bad_setting`` if it holds something else than a log."""
        self._follower = Tailer(directory, after, on_missing=on_missing)
        self._begin(after)

    @property
    def pointer(self) -> int:
        """The pointer of the last record that was returned: begin behind it the next time."""
        returned = self._count - length_hint(self._left)
        return self._first + returned - 1 if returned else self._before

    def close(self) -> None:
        """Close the file that is being read."""
        self._begin(self.pointer)
        self._follower.close()

    def seek(self, pointer: int) -> None:
        """Go on with the first record above a pointer: one that was returned, or any time."""
        self._follower.seek(pointer)
        self._begin(pointer)

    def seek_to_end(self) -> None:
        """Go on behind the newest record that is there now."""
        self._follower.seek_to_end()
        self._begin(self._follower.after)

    def read(self, limit: int = 1_000, timeout: float | None = 0.0) -> list[Record]:
        """Return up to `limit` records; none at the end of the log.

        timeout: seconds to wait for the first one there, None for as long as it takes.
        """
        found: list[Record] = []
        if self._has_records(timeout):
            found += islice(self._left, limit)
            while self._ready and len(found) < limit and self._has_records():
                found += islice(self._left, limit - len(found))
        return found

    def __iter__(self) -> Iterator[Record]:
        """Yield records up to the end of the log. Iterating again goes on there."""
        return chain.from_iterable(self._lists(0.0))

    def tail(self, timeout: float | None = None) -> Iterator[Record]:
        """Yield records as they come; end after `timeout` seconds without one, None: never."""
        return chain.from_iterable(self._lists(timeout))

    def batches(self, timeout: float | None = 0.0) -> Iterator[LogBatch]:
        """Yield records as columns, see `LogBatch`, up to the end of the log: 30 ns a record.

        timeout: as of `tail`. A batch counts as returned once it is yielded.
        """
        if self._batch is not None and length_hint(self._left):
            rest, last = LogBatch.of(self._batch, self.pointer), self._batch.header.last
            self._skip(last)
            yield rest
        while (found := self._take(timeout)) is not None:
            self._skip(found.header.last)
            yield LogBatch.of(found, self._above)

    # -- inside -----------------------------------------------------------------------------------------

    def _begin(self, pointer: int) -> None:
        """Start behind a pointer, with nothing at hand."""
        self._ready: deque[Stored] = deque()
        self._skip(pointer)

    def _skip(self, pointer: int) -> None:
        """Leave away what is left of a batch. An iterator that is in use ends with it, too."""
        deque(getattr(self, "_left", ()), maxlen=0)
        self._before = pointer
        self._batch: DecodedBatch | None = None
        self._first = self._count = 0
        """The first pointer of the records of the batch, and their number."""
        self._left: Iterator[Record] = iter(())

    def _lists(self, timeout: float | None) -> Iterator[Iterator[Record]]:
        """Yield what is left of each batch. The pointer is found by how far that was iterated over."""
        while self._has_records(timeout):
            yield self._left

    def _has_records(self, timeout: float | None = 0.0) -> bool:
        """Make the records of the next batch, unless some are left; False if there are none in time."""
        while not length_hint(self._left):
            found = self._take(timeout)
            if found is None:
                return False
            self._before, self._batch = self.pointer, found
            self._left = records_in(found, self._above)
            self._count = length_hint(self._left)
            self._first = found.header.last - self._count + 1
        return True

    def _take(self, timeout: float | None) -> DecodedBatch | None:
        """Decode the next batch, as soon as there is one; None if there is none within `timeout`."""
        if not self._ready:
            self._above = self._follower.after
            self._ready += self._follower.wait(timeout)
        return batch.decode(self._ready.popleft().data, self._follower.log_id) if self._ready else None
