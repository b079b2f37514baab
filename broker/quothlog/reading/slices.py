"""Slices: the records of a range as the bytes of the batches that hold them, and back to records.

    pointers   1 2 3 │ 4 5 6 7 │ 8 9          three batches
    slice(5, 8)        4 5 6 7 │ 8 9          `data`: the last two of them, whole
    decode(...)            6 7   8            their records above 5 up to 8

A batch has one checksum, so it is stored, copied and sent whole. A slice knows the range that was asked for,
so `decode` of a slice returns the records of the range. `decode` of its bare bytes returns all that lie in
them, or those of the range that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quothlog.reading.read_request import decoded_batch
from quothlog.reading.segment_reader import Extract, up_to
from quothwire import batch
from quothwire.batch import Bytes, Header
from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX
from quothwire.record import Record, records_of


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The records above the pointer `after` up to `next`, in whole batches. False if there are none.

    data: the batches as they are stored, one behind the other; the first and the last one may reach beyond
    the range. log_id: seeds their header checksums. next: the cursor to go on with. first, last: pointers of
    records of the range, 0 for none. count: its records. ordinal: that of the first one, -1 for none; equal
    to `ordinal + count` of the slice before unless records between them are gone.
    """

    log_id: int
    data: bytes
    after: int
    next: int
    first: int
    last: int
    count: int
    ordinal: int

    def __bool__(self) -> bool:
        return self.count > 0


class SliceBuilder:
    """Gathers extracts that follow each other into the slice of a range.

    end: the pointer up to which readers see the log.
    """

    def __init__(self, log_id: int, after: int, until: int, end: int) -> None:
        self._log_id = log_id
        self._after = self._here = after
        self._until = until
        self._end = end
        self._parts: list[Bytes] = []
        self._size = self._count = 0
        self._first = self._last = 0
        self._ordinal = self._expected = -1

    def gather(
        self, fetch: Callable[[int, int, int], Extract | None], records_max: int, bytes_max: int
    ) -> LogSlice:
        """Return the slice: exactly so many records if the range has them within so many bytes.

        fetch: returns the first batches above a pointer within limits of records and bytes, at least one. A
        slice holds one batch at least, and ends in front of a place where records are gone.
        """
        while self._here < self._until and self._count < records_max and self._size < bytes_max:
            found = fetch(self._here, records_max - self._count, bytes_max - self._size)
            if found is None:
                if self._until <= self._end:
                    self._here = self._until
                break
            if self._parts and not self._follows(found, bytes_max):
                break
            self._add(found, records_max - self._count)
        data = bytes(self._parts[0]) if len(self._parts) == 1 else b"".join(self._parts)
        place = self._after, self._here, self._first, self._last
        return LogSlice(self._log_id, data, *place, self._count, self._ordinal)

    def _follows(self, found: Extract, bytes_max: int) -> bool:
        return found.ordinal == self._expected and self._size + len(found.data) <= bytes_max

    def _add(self, found: Extract, records_max: int) -> None:
        """Add the batches of an extract that begin within the range, and up to so many of their records."""
        is_all = self._until <= found.next
        if self._until < found.next:
            found = up_to(found, self._log_id, self._until)
        if not found.data:
            self._here = self._until
            return
        base = batch.parse_header(found.data, self._log_id).base
        first, last = max(base, self._here + 1), min(found.next, self._until)
        count = found.end - found.ordinal - (first - base) - (found.next - last)
        if count > records_max:  # of a batch that came alone, whose pointers have no holes
            count, last, is_all = records_max, first + records_max - 1, False
        if not self._parts:
            self._first, self._ordinal = first, found.ordinal + first - base
        self._parts.append(found.data)
        self._size += len(found.data)
        self._count += count
        self._expected = found.end
        self._last = last
        self._here = self._until if is_all else last


def decode(
    raw: LogSlice | Bytes, log_id: int = 0, *, after: int = 0, until: int = POINTER_MAX
) -> list[Record]:
    """Return the records of a slice, or of the bytes of stored batches, without a log.

    The bytes may be those of `LogSlice.data`, of a file at a `FileRange`, or of a broker's fetch. Several of
    these may be joined, in the order of their pointers: a batch that two neighbours share counts once.
    log_id: of the log that has stored them, which a slice knows itself. after, until: only records above the
    one and up to the other pointer; of a slice, only those of its own range.
    Raises `Damaged` for anything else than whole batches of this log, with the pointer to go on after.
    """
    if isinstance(raw, LogSlice):
        log_id, after, until, raw = raw.log_id, max(after, raw.after), min(until, raw.next), raw.data
    view = memoryview(raw).cast("B")
    found: list[Record] = []
    before: Header | None = None
    position, last = 0, after
    while position < len(view) and last < until:
        header = _header_at(view, position, log_id, last)
        if header.base > until:
            break
        end = position + header.size
        if header != before:
            if before is not None and header.base <= before.last:
                text = f"byte {position}: a batch from pointer {header.base} on, behind pointer {before.last}"
                raise error("damaged", text, "join slices in the order of their pointers")
            if header.last > after:
                records = records_of(decoded_batch(view[position:end], log_id), after)
                found += records[: len(records) - max(0, header.last - until)]
        before, position, last = header, end, max(last, header.last)
    return found


def _header_at(view: memoryview, position: int, log_id: int, last: int) -> Header:
    """Return the header of the batch at an offset. last: the last pointer in front of it."""
    try:
        return batch.parse_header(view, log_id, position)
    except QuothError as problem:
        hint = f"these are no batches of log {log_id}, or their length is lost; read again after {last}"
        raise error("damaged", f"byte {position}: {problem.text}", hint) from None
