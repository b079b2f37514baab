"""Counts the records between a cursor and what a reader gets: removed ones, and damaged ones."""

from __future__ import annotations

from typing import NamedTuple

from quothlog.active_segment import ActiveSegment
from quothlog.reading.segment_reader import Extract, first_above
from quothlog.sealed import SealedSegments
from quothlog.segment import Segment
from quothwire import batch


class ReadLoss(NamedTuple):
    """Records between a cursor and an extract that are not there any more, and how many of them are damaged.

    Exact if the reader knows its ordinal, else at most so many.
    """

    records: int
    damaged: int


NOTHING = ReadLoss(0, 0)


def loss_before(
    found: Extract, after: int, ordinal: int, sealed: SealedSegments, active: ActiveSegment, log_id: int
) -> ReadLoss:
    """Count what is missing between a cursor and an extract. ordinal: the expected one, -1 for unknown."""
    if ordinal == found.ordinal:
        return NOTHING
    start = (sealed.oldest() or active).start
    if ordinal < 0:
        ordinal = 0 if after < start.pointer else _expected(found, after, sealed, active, log_id)
    records = max(0, found.ordinal - ordinal)
    return ReadLoss(records, min(records, max(0, found.ordinal - start.ordinal)))


def _expected(found: Extract, after: int, sealed: SealedSegments, active: ActiveSegment, log_id: int) -> int:
    """Return the ordinal that the first record above `after` would have without any damage before it."""
    if not sealed or after + 1 >= active.floor:
        return found.expected
    one, following = sealed.holding(after)
    if batch.parse_header(found.data, log_id).base >= (following or active).floor:
        return _ordinal_behind(one, after)  # nothing above `after` is left in that segment
    if found.expected == one.start.ordinal and not one.has_block and (before := sealed.before(one)):
        return _ordinal_behind(before, after)  # only the one before tells where it began
    return found.expected


def _ordinal_behind(one: Segment, after: int) -> int:
    """Return the ordinal behind the last record of a segment up to a pointer, as far as it can be read."""
    return first_above(one.view(), one.log_id, after)[0].ordinal
