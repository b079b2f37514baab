"""Reads extracts: whole batches as they are stored, from any pointer of a segment.

Most readers go on where their last extract ended, so the ends of extracts are remembered. From there, or from
the next position of the sparse index below, batches that follow each other are passed over by their headers
in a tight loop. Whatever is not as it should be there is left to `walk`, which knows about damage.
"""

from __future__ import annotations

from typing import NamedTuple

from quothlog.file_format import LogPosition
from quothlog.index import INDEX_STEP_BYTES, SparseIndex
from quothlog.recovery.scan import Found, batches, walk
from quothlog.storage.filesystem import File
from quothwire import batch
from quothwire.batch import Bytes, Header
from quothwire.errors import QuothError

GUESS_BYTES = 2**12
"""Read beyond what records take on average: a header and some records more cost nothing."""
AT_HAND_BYTES = 2**20
"""A reply of a usual size: a copy from memory takes less than what the way through a reader thread costs."""
EXTRACT_ENDS_MAX = 256
"""Ends of extracts that are remembered for one segment, 200 bytes each: as many consumers read on at once."""


class Extract(NamedTuple):
    """Whole batches as they are stored. `next` is the pointer of their last record.

    expected: the ordinal that the first one would have if nothing in front of it were damaged. end: the
    ordinal behind the last record.
    """

    data: Bytes
    ordinal: int
    next: int
    expected: int
    end: int


def up_to(found: Extract, log_id: int, until: int) -> Extract:
    """Return the batches of an extract that begin up to a pointer below its end; `next` is 0 for none."""
    data = found.data
    size, last, end = batch.whole(data, log_id, 0, found.ordinal, until)
    if size < len(data) and (header := batch.parse_header(data, log_id, size)).base <= until:
        size, last, end = size + header.size, header.last, header.end_ordinal
    return found._replace(data=_head(data, size), next=last, end=end)


def _head(data: Bytes, size: int) -> Bytes:
    """The first bytes, as a view unless it kept far more from being freed than it shows."""
    return memoryview(data)[:size] if 2 * size > len(data) else bytes(data[:size])


class SegmentView(NamedTuple):
    """All that a read of a segment needs.

    extract_ends: of earlier extracts, by their last pointers. below: exclusive upper bound of its pointers.
    sight: the offset up to which batches were searched when the end was found: what lies behind the last
    batch shows whether one before it is in its place.
    """

    file: File
    sparse: SparseIndex
    extract_ends: dict[int, LogPosition]
    end: LogPosition
    below: int
    sight: int

    def bytes_of(self, records: int) -> int:
        """Estimate the bytes of so many records, somewhat above the average, so that one read is enough."""
        start, end = self.sparse.start, self.end
        stored = end.ordinal - start.ordinal or 1
        return records * (end.offset - start.offset) * 5 // (stored * 4) + GUESS_BYTES


def extract(view: SegmentView, log_id: int, after: int, records_max: int, bytes_max: int) -> Extract | None:
    """Read the stored bytes of the first batches with records above `after`; None if there are none.

    At least one batch, then as many as fit both limits, up to a place where the headers are damaged.
    """
    limits = records_max, bytes_max
    return (
        _extract_next(view, log_id, after, *limits)
        or _extract_sound(view, log_id, after, *limits)
        or _extract_any(view, log_id, after, *limits)
    )


def extract_at_hand(
    view: SegmentView,
    log_id: int,
    after: int,
    records_max: int,
    bytes_max: int,
    at_hand_max: int = AT_HAND_BYTES,
) -> Extract | None:
    """Extract if a reader has read up to here, and the batches are in memory; else return None.

    at_hand_max: None if there are more bytes than that.
    """
    return _extract_next(view, log_id, after, records_max, bytes_max, at_hand_max)


def first_above(view: SegmentView, log_id: int, after: int) -> tuple[LogPosition, Found | None]:
    """The first batch with records above `after`, and the boundary behind the last one that can be read
    before it."""
    here = view.sparse.before(after)
    for found in batches(view.file, here, view.sight, log_id, below=view.below):
        if found.header.last > after:
            return here, found
        here = found.end
    return here, None


def _extract_next(
    view: SegmentView, log_id: int, after: int, records_max: int, bytes_max: int, at_hand_max: int = 0
) -> Extract | None:
    """Extract if a reader has read up to here, or comes from an earlier segment, and nothing is damaged.

    None, too, if no batch is within the limits. at_hand_max: if given, only an extract up to this size, and
    only from memory.
    """
    start = view.extract_ends.get(after)
    if start is None:
        if after > view.sparse.start.pointer:
            return None
        start = view.sparse.start
    most = min(bytes_max, view.end.offset - start.offset)
    size = min(most, view.bytes_of(records_max))
    if not at_hand_max:
        data: Bytes | None = view.file.read(size, start.offset)
    else:
        data = view.file.read_at_hand(size, start.offset) if size <= at_hand_max else None
    if data is None:
        return None
    return _sound(view, log_id, start, data, start.ordinal + records_max, most, may_wait=not at_hand_max)


def _extract_sound(
    view: SegmentView, log_id: int, after: int, records_max: int, bytes_max: int
) -> Extract | None:
    """The extract if nothing is wrong on the way to it and at its beginning."""
    found = _start(view, log_id, after)
    if found is None:
        return None
    start, header, ahead = found
    ordinal_max = header.ordinal + max(0, after - header.base + 1) + records_max
    most = min(max(header.size, bytes_max), view.end.offset - start.offset)
    size = header.size
    if header.end_ordinal < ordinal_max:
        size = max(size, view.bytes_of(ordinal_max - header.ordinal))
    size = min(size, most)
    data = ahead[:size] if len(ahead) >= size else view.file.read(size, start.offset)
    return _sound(view, log_id, start, data, max(ordinal_max, header.end_ordinal), most)


def _sound(
    view: SegmentView,
    log_id: int,
    start: LogPosition,
    data: Bytes,
    ordinal_max: int,
    most: int,
    *,
    may_wait: bool = True,
) -> Extract | None:
    """Return the undamaged batches behind a boundary that end up to an ordinal; None for none.

    most: how many bytes may be read, if those that were read turn out to be too few. may_wait: for a disk, to
    do so; else it is None then.
    """
    bounds = log_id, start.pointer, start.ordinal, view.below - 1, ordinal_max
    size, last, ordinal = batch.whole(data, *bounds)
    if not size:
        return None
    if ordinal < ordinal_max and len(data) < most and _is_cut(data, size, log_id):
        if not may_wait:
            return None
        data = view.file.read(most, start.offset)
        size, last, ordinal = batch.whole(data, *bounds)
        if not size:  # the file is shorter than when it was opened
            return None
    if len(view.extract_ends) >= EXTRACT_ENDS_MAX:
        view.extract_ends.clear()
    view.extract_ends[last] = LogPosition(start.offset + size, last, ordinal)
    return Extract(_head(data, size), start.ordinal, last, start.ordinal, ordinal)


def _is_cut(data: Bytes, end: int, log_id: int) -> bool:
    """Return True if a batch begins behind the last whole one, of which not all was read."""
    if len(data) - end < batch.HEADER_BYTES:
        return True
    try:
        return batch.parse_header(data, log_id, end).size > len(data) - end
    except QuothError:
        return False


def _start(view: SegmentView, log_id: int, after: int) -> tuple[LogPosition, Header, memoryview] | None:
    """The boundary in front of the first batch above a pointer, its header, and what was read from there on.

    None if there is none, or if the batches on the way there do not follow each other as they should.
    """
    here, step = view.extract_ends.get(after), batch.HEADER_BYTES
    if here is None:
        here, step = view.sparse.before(after), INDEX_STEP_BYTES
    passed = 1
    while passed and here.offset < view.end.offset:
        size = min(step, view.end.offset - here.offset)
        ahead = memoryview(view.file.read(size, here.offset))
        passed, last, ordinal = batch.whole(ahead, log_id, *here[1:], min(after, view.below - 1))
        here = LogPosition(here.offset + passed, last, ordinal)
        ahead = ahead[passed:]
        try:
            header = batch.parse_header(ahead, log_id)
        except QuothError:
            continue
        if header.last > after:
            return here, header, ahead
    return None


def _extract_any(
    view: SegmentView, log_id: int, after: int, records_max: int, bytes_max: int
) -> Extract | None:
    """The extract wherever it lies, and whatever is damaged in front of it."""
    file, sparse, _, end, below, sight = view
    here, first = first_above(view, log_id, after)
    if first is None:
        return None
    header = first.header
    offset_max = first.offset + bytes_max
    ordinal_max = header.ordinal + max(0, after - header.base + 1) + records_max
    stop = first.end
    if stop.offset <= end.offset <= offset_max and end.ordinal <= ordinal_max:
        stop = end
    else:  # also for a batch behind the end, a copy whose original is damaged
        stop = max(stop, sparse.leap(offset_max, ordinal_max))
        for step in walk(file, stop, sight, log_id, below=below):
            if not isinstance(step, Found):
                break
            if step.end.offset > offset_max or step.end.ordinal > ordinal_max:
                break
            stop = step.end
    data = file.read(stop.offset - first.offset, first.offset)
    whole, last, end_ordinal = batch.whole(data, log_id, header.base - 1, header.ordinal)
    if not whole:  # the file is shorter than when it was opened
        return extract(view, log_id, header.last, records_max, bytes_max)
    expected = here.ordinal if header.base > after else header.ordinal
    return Extract(_head(data, whole), header.ordinal, last, expected, end_ordinal)
