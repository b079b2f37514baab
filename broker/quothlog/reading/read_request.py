"""A lookup: where to read, found by the log's owner, to be read by whoever has the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from quothlog.file_format import Position
from quothlog.reading.segment_reader import Extract, extract
from quothlog.segment import Segment
from quothwire import batch
from quothwire.errors import QuothError, error
from quothwire.record import Record, records_of

DEFAULT_BYTES = 2**20
UNLIMITED = 2**63

Fetch = Callable[[int, int], Extract | None]
"""The extract above a pointer, of at most so many records where that is possible."""


class ReadRequest(NamedTuple):
    """A place to read from: the records above `after` in one segment.

    sealed: any thread may call `read`. beyond: where to go on if there is nothing above `after` in it.
    Retention may remove the segment before it is read; then there is nothing above `after` in it any more.
    """

    segment: Segment
    end: Position | None
    after: int
    beyond: int
    records_max: int
    bytes_max: int

    @property
    def sealed(self) -> bool:
        """May any thread read it?"""
        return self.end is None

    def read_at_hand(self) -> Extract | None:
        """What can be read at once, without a disk; None says nothing about what is there."""
        return self.segment.read_at_hand(self.after, self.records_max, self.bytes_max)

    def read(self) -> Extract | None:
        """Read the batches; None if the segment holds nothing above `after`."""
        if self.end is None:
            try:
                return self.segment.read(self.after, self.records_max, self.bytes_max)
            except FileNotFoundError:
                if self.segment.removed:
                    return None
                raise
        view = self.segment.view().up_to(self.end)
        return extract(view, self.segment.log_id, self.after, self.records_max, self.bytes_max)


def records_above(fetch: Fetch, log_id: int, after: int, limit: int) -> Iterator[Record]:
    """So many records above a pointer, as far as there are any. fetch: the extract above a pointer."""
    while limit > 0 and (found := fetch(after, limit)) is not None:
        for records in _records_in(found, log_id, after):
            yield from records[:limit]
            limit -= len(records)
        after = found.next


def _records_in(found: Extract, log_id: int, after: int) -> Iterator[list[Record]]:
    """The records above a pointer, batch by batch; `Damaged` at one that does not check."""
    for raw in batch.split(found.data, log_id):
        try:
            yield records_of(batch.decode(raw, log_id), after)
        except QuothError as problem:
            header = batch.parse_header(raw, log_id)
            text = f"{header.records} records from pointer {header.base} on: {problem.text}"
            raise error("damaged", text, f"read on after {header.last}") from None
