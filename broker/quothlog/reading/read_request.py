"""Requests to read a log, which its owner makes and any thread can execute, and what such a read misses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, starmap
from typing import NamedTuple

from quothlog.active_segment import ActiveSegment
from quothlog.reading.segment_reader import (
    AT_HAND_BYTES,
    Extract,
    SegmentView,
    extract,
    extract_at_hand,
    first_above,
)
from quothlog.sealed import SealedSegments
from quothlog.segment import Segment
from quothwire import batch
from quothwire.batch import Bytes, DecodedBatch
from quothwire.errors import QuothError, error
from quothwire.record import Record, records_in

DEFAULT_BYTES = 2**20
UNLIMITED = 2**63


class ReadRequest(NamedTuple):
    """The records above `after` in one segment.

    view: of the active segment, None for a sealed one. beyond: where to go on if there is nothing above
    `after` in it. If retention removes the segment before it is read, nothing is left above `after` in it.
    """

    segment: Segment
    view: SegmentView | None
    after: int
    beyond: int
    records_max: int
    bytes_max: int

    @property
    def sealed(self) -> bool:
        """True if any thread may read it."""
        return self.view is None

    def read_at_hand(self, at_hand_max: int = AT_HAND_BYTES) -> Extract | None:
        """Return what can be read at once, without a disk; None says nothing about what is there.

        at_hand_max: bytes, of which there may be no more.
        """
        view, log_id = self.segment.kept_view, self.segment.log_id
        limits = self.records_max, self.bytes_max, at_hand_max
        return extract_at_hand(view, log_id, self.after, *limits) if view else None

    def read(self) -> Extract | None:
        """Read the batches; None if the segment holds nothing above `after`."""
        try:
            view = self.view or self.segment.view()
            return extract(view, self.segment.log_id, self.after, self.records_max, self.bytes_max)
        except FileNotFoundError:
            if self.segment.removed:
                return None
            raise


def batches_above(
    after: int, log_id: int, fetch: Callable[[int, int], Extract | None], records: int = UNLIMITED
) -> Iterator[tuple[DecodedBatch, int]]:
    """Yield decoded batches, until they have so many records above a pointer, each with where to begin in it.

    fetch: returns up to so many records above a pointer. Raises `Damaged` for a batch that does not check.
    """
    while records > 0 and (found := fetch(after, records)) is not None:
        for raw in batch.split(found.data, log_id):
            one = decoded_batch(raw, log_id)
            yield one, after
            records -= one.header.last - max(after, one.header.base - 1)
        after = found.next


def records_above(
    after: int, log_id: int, fetch: Callable[[int, int], Extract | None], limit: int | None
) -> Iterator[Record]:
    """Yield so many records above a pointer, None: all. Raises as `batches_above` does."""
    wanted = UNLIMITED if limit is None else max(0, limit)
    rows = starmap(records_in, batches_above(after, log_id, fetch, wanted))
    return islice(chain.from_iterable(rows), None if limit is None else wanted)


def decoded_batch(raw: Bytes, log_id: int) -> DecodedBatch:
    """Check and decode one stored batch. Raises `Damaged`, whose hint has the pointer to read on after."""
    try:
        return batch.decode(raw, log_id)
    except QuothError as problem:
        header = batch.parse_header(raw, log_id)
        text = f"{header.records} records from pointer {header.base} on: {problem.text}"
        raise error("damaged", text, f"read on after {header.last}") from None


class ReadLoss(NamedTuple):
    """Records between a cursor and an extract that are not there any more, and how many of them are damaged.

    Exact if the reader knows its ordinal, else at most so many.
    """

    records: int
    damaged: int


def loss_before(
    found: Extract, after: int, ordinal: int, sealed: SealedSegments, active: ActiveSegment
) -> ReadLoss:
    """Count what is missing between a cursor and an extract. ordinal: the expected one, -1 for unknown."""
    if ordinal == found.ordinal:
        return ReadLoss(0, 0)
    start = (sealed.oldest() or active).start
    if ordinal < 0:
        ordinal = 0 if after < start.pointer else _expected(found, after, sealed, active)
    records = max(0, found.ordinal - ordinal)
    return ReadLoss(records, min(records, max(0, found.ordinal - start.ordinal)))


def _expected(found: Extract, after: int, sealed: SealedSegments, active: ActiveSegment) -> int:
    """Return the ordinal that the first record above `after` would have without any damage before it."""
    if not sealed or after + 1 >= active.floor:
        return found.expected
    one, following = sealed.holding(after)
    if batch.parse_header(found.data, active.log_id).base >= (following or active).floor:
        return _ordinal_behind(one, after)  # nothing above `after` is left in that segment
    if found.expected == one.start.ordinal and not one.has_block and (before := sealed.before(one)):
        return _ordinal_behind(before, after)  # only the one before tells where it began
    return found.expected


def _ordinal_behind(one: Segment, after: int) -> int:
    """Return the ordinal behind the last record of a segment up to a pointer, as far as it can be read."""
    return first_above(one.view(), one.log_id, after)[0].ordinal
