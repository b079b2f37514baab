"""The sparse index of one segment: a position every 64 KiB, from which batches are walked.

24 bytes a position. It only ever tells where to begin walking, so an index with holes is slow, not wrong.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from quothlog.file_format import LogPosition

INDEX_STEP_BYTES = 64 * 2**10
"""A walk from a position looks at one read of this size: 20 us from the page cache."""


class SparseIndex:
    """Boundaries between batches, ascending. One thread adds, any thread may look.

    next_offset: the next boundary that it takes in lies here or behind.
    """

    __slots__ = ("_offsets", "_ordinals", "_pointers", "next_offset", "start")

    def __init__(self, positions: Iterable[LogPosition]) -> None:
        rows = list(positions)
        self.start = rows[0]
        self._offsets = array("Q", (row.offset for row in rows))
        self._pointers = array("Q", (row.pointer for row in rows))
        self._ordinals = array("Q", (row.ordinal for row in rows))
        self.next_offset = rows[-1].offset + INDEX_STEP_BYTES

    def note(self, position: LogPosition) -> None:
        """Take this boundary in if it lies a step behind the last one."""
        if position.offset >= self.next_offset:
            self._pointers.append(position.pointer)
            self._ordinals.append(position.ordinal)
            self._offsets.append(position.offset)
            self.next_offset = position.offset + INDEX_STEP_BYTES

    def positions(self) -> list[LogPosition]:
        """All boundaries."""
        return list(map(LogPosition, self._offsets, self._pointers, self._ordinals))

    def before(self, after: int) -> LogPosition:
        """The last boundary that no record above the pointer `after` precedes."""
        return self._at(bisect_right(self._pointers, after, hi=len(self._offsets)) - 1)

    def leap(self, offset: int, ordinal: int) -> LogPosition:
        """The last boundary with at most this offset and this ordinal."""
        rows = bisect_right(self._offsets, offset)
        return self._at(bisect_right(self._ordinals, ordinal, hi=rows) - 1)

    def _at(self, row: int) -> LogPosition:
        row = max(row, 0)
        return LogPosition(self._offsets[row], self._pointers[row], self._ordinals[row])
