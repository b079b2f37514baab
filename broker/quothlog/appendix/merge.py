"""Merges the records of segments by their pointers.

Segments follow each other in the order of their names, yet two of Poe's may overlap: a put that was under
way when a segment was rolled ends in the older one, with a pointer above the first ones of the newer. And a
clock that was set back across a restart gives a new segment a name, and pointers, of an earlier time.

So a segment is opened as soon as its first pointer is the smallest of all that are next. As a rule one is
read at a time, whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quothlog.importing.source import ImportedRecord

MERGED_MAX = 4
"""Segments that are merged at once. Of more that overlap the later ones wait, and their pointers change."""


def merged(segments: Iterable[Iterator[ImportedRecord]]) -> Iterator[ImportedRecord]:
    """Yield the records of all segments, sorted by pointer as far as each segment is.

    A record whose pointer is not above that of the one before it in its segment stays behind that one.
    """
    rows = (row for row in map(_SegmentRow, segments) if row.is_filled)
    coming = next(rows, None)
    open_rows: list[_SegmentRow] = []
    while open_rows or coming is not None:
        first = min(open_rows, key=_key, default=None)
        may_open = coming is not None and len(open_rows) < MERGED_MAX
        if may_open and coming is not None and (first is None or coming.key <= first.key):
            open_rows.append(coming)
            coming = next(rows, None)
            continue
        assert first is not None
        limits = [row.key for row in open_rows if row is not first]
        if may_open and coming is not None:
            limits.append(coming.key)
        yield from first.up_to(min(limits, default=None))
        if not first.is_filled:
            open_rows.remove(first)


class _SegmentRow:
    """The records of one segment that are still to come. key: by which the next one is sorted.

    is_filled: False behind the last one.
    """

    def __init__(self, records: Iterator[ImportedRecord]) -> None:
        self._records = records
        self._record: ImportedRecord | None = None
        self._following = next(records, None)
        self.key = -1
        self._step()

    @property
    def is_filled(self) -> bool:
        """See the class."""
        return self._record is not None

    def up_to(self, limit: int | None) -> Iterator[ImportedRecord]:
        """Yield records as long as their keys are at most this limit, at least one."""
        while (record := self._record) is not None:
            self._step()
            yield record
            if limit is not None and self.key > limit:
                return

    def _step(self) -> None:
        """Go to the next record.

        One above its successor does not wait for other segments, or a single wrong pointer, far too high,
        would let all behind it come last.
        """
        record = self._record = self._following
        self._following = following = next(self._records, None)
        if record is not None and record.pointer is not None:
            key = record.pointer
            if following is not None and following.pointer is not None and following.pointer < key:
                key = following.pointer
            self.key = max(self.key, key)


def _key(row: _SegmentRow) -> int:
    return row.key
