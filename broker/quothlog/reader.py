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
from itertools import islice
from pathlib import Path

from quothlog.reading.tailer import Missing, Tailer
from quothwire import batch
from quothwire.closing import Closeable
from quothwire.record import Record, records_of

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
        """after: a pointer, exclusive; 0: from the oldest record on. Raises FileNotFoundError if there is no
        such directory; one without a log is an empty log. on_missing: called with records that are gone."""
        self.pointer = after
        """The pointer of the last record that was returned: begin behind it the next time."""
        self._follower = Tailer(directory, after, on_missing=on_missing)
        self._ready: deque[Record] = deque()

    def close(self) -> None:
        """Close the file that is being read."""
        self._ready.clear()
        self._follower.close()

    def seek(self, pointer: int) -> None:
        """Go on with the first record above a pointer: one that was returned, or any time."""
        self._follower.seek(pointer)
        self._ready.clear()
        self.pointer = pointer

    def seek_to_end(self) -> None:
        """Go on behind the newest record that is there now."""
        self._ready.clear()
        self._follower.seek_to_end()
        self.pointer = self._follower.after

    def read(self, limit: int = 1_000, timeout: float | None = 0.0) -> list[Record]:
        """Return up to `limit` records; none at the end of the log.

        timeout: seconds to wait for the first one there, None for as long as it takes.
        """
        if not self._ready:
            self._fill(timeout)
        return list(islice(self._drain(), limit))

    def __iter__(self) -> Iterator[Record]:
        """Yield records up to the end of the log. Iterating again goes on there."""
        while self._ready or self._fill():
            yield from self._drain()

    def tail(self, timeout: float | None = None) -> Iterator[Record]:
        """Yield records as they come; end after `timeout` seconds without one, None: never."""
        while self._ready or self._fill(timeout):
            yield from self._drain()

    def _drain(self) -> Iterator[Record]:
        while self._ready:
            record = self._ready.popleft()
            self.pointer = record.pointer
            yield record

    def _fill(self, timeout: float | None = 0.0) -> bool:
        """Read the next records, as soon as there are some; False if there are none within `timeout`."""
        after = self._follower.after
        for stored in self._follower.wait(timeout):
            self._ready += records_of(batch.decode(stored.data, self._follower.log_id), after)
        return bool(self._ready)
