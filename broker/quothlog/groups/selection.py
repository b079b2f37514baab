"""Selects the records of an extract that are handed out together, as batches."""

from __future__ import annotations

from typing import NamedTuple

from quothlog.groups.spans import Extents
from quothlog.reading.segment_reader import Extract
from quothwire import batch
from quothwire.batch import Bytes, Header
from quothwire.columns import part_of
from quothwire.errors import QuothError

BATCHES_MAX = 10_000
"""Batches of one hand-out: each takes 1 us."""


class ChosenRecords(NamedTuple):
    """Records to hand out. last: the pointer of the last one. ordinal: the one behind it. is_all: the extract
    has no other one within the pointers.

    batches: whole ones as they are stored, and parts of those of which not all records were asked for. A
    damaged one is whole, so that its reader finds the damage.
    """

    records: int
    last: int
    ordinal: int
    extents: Extents
    batches: list[Bytes]
    is_all: bool = False


def select(found: Extract, log_id: int, after: int, until: int, records_max: int) -> ChosenRecords | None:
    """Select the first records of an extract with pointers in (after, until]; None if it has none."""
    firsts: list[int] = []
    lasts: list[int] = []
    parts: list[Bytes] = []
    records = ordinal = at = whole_from = 0
    is_cut = False
    data = memoryview(found.data)
    while at < len(data) and records < records_max and len(firsts) < BATCHES_MAX:
        header = batch.parse_header(data, log_id, at)
        if header.base > until:
            break
        first, last = max(header.base, after + 1), min(header.last, until)
        is_cut = last - first >= records_max - records
        last = min(last, first + records_max - records - 1)
        size = header.size
        if first <= last:
            firsts.append(first)
            lasts.append(last)
            records += last - first + 1
            ordinal = header.ordinal + last - header.base + 1
            if (first, last) != (header.base, header.last):
                if whole_from < at:
                    parts.append(data[whole_from:at])
                parts.append(_part(header, data[at : at + size], first, last, log_id))
                whole_from = at + size
        at += size
    if not records:
        return None
    if whole_from < at:
        parts.append(data[whole_from:at])
    is_all = not is_cut and (at >= len(data) or batch.parse_header(data, log_id, at).base > until)
    return ChosenRecords(records, lasts[-1], ordinal, Extents(after, firsts, lasts), parts, is_all)


def _part(header: Header, raw: memoryview, first: int, last: int, log_id: int) -> Bytes:
    """Return the records of a batch from a first to a last pointer; the batch itself if it is damaged."""
    try:
        return part_of(header, raw, first - header.base, last - header.base + 1, log_id)
    except QuothError:
        return raw
