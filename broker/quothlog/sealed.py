"""The sealed segments of a log, oldest first, and which of them stay open for reading."""

from __future__ import annotations

from bisect import bisect_right

from quothlog.segment import Segment

VIEWS_MAX = 8
"""Sealed segments that stay open for reading, with a descriptor and an index each: not all of history."""


class SealedSegments(list[Segment]):
    """The list of sealed segments. It belongs to the log's owner; any thread may read one of them."""

    def __init__(self, segments: list[Segment]) -> None:
        super().__init__(segments)
        self._kept: list[Segment] = []

    def holding(self, after: int) -> tuple[Segment, Segment | None]:
        """The one that holds the first record above a pointer below the active segment's floor, if any does,
        and the one behind it. Files that only bear the name of one are passed over."""
        row = self.row_of(after)
        behind = row + 1
        while behind < len(self) and self[behind].is_misplaced:
            behind += 1
        return self[row], self[behind] if behind < len(self) else None

    def oldest(self) -> Segment | None:
        """The oldest one; files that only bear the name of one are passed over."""
        return next((one for one in self if not one.is_misplaced), None)

    def before(self, one: Segment) -> Segment | None:
        """The one in front of another one."""
        row = self.index(one)
        return self[row - 1] if row else None

    def row_of(self, after: int) -> int:
        """The row of the one that holds the first record above a pointer, if any of them does."""
        row = max(0, bisect_right(self, after + 1, key=lambda one: one.floor) - 1)
        while row and self[row].is_misplaced:
            row -= 1
        return row

    def keep(self, one: Segment) -> None:
        """Let a segment stay open that is read; those that were read longest ago are closed."""
        one.keep()
        if one not in self._kept:
            self._kept.append(one)
            if len(self._kept) > VIEWS_MAX:
                self._kept.pop(0).rest()

    def rest(self) -> None:
        """Close all of them."""
        for one in self._kept:
            one.rest()
        self._kept.clear()

    def remove_oldest(self, count: int) -> int:
        """Remove the files of so many; returns their bytes. Raises OSError; what is removed is not listed."""
        size = 0
        for one in self[:count]:
            one.rest()
            one.remove()
            self.remove(one)
            size += one.size
        self._kept = [one for one in self._kept if not one.removed]
        return size
