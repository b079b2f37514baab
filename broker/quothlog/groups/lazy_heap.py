"""A heap whose rows are not removed when they become invalid, but when they come up or are too many."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")
_SLACK = 32


class LazyHeap(Generic[T]):
    """Items by a number, the lowest first.

    is_valid: returns False for a row, a number with its item, that does not count any more. At most half of
    the rows are such, and a few.
    """

    __slots__ = ("_count", "_is_valid", "_limit", "_rows")

    def __init__(self, is_valid: Callable[[float, T], bool]) -> None:
        self._is_valid = is_valid
        self._rows: list[tuple[float, int, T]] = []
        self._count = count()
        self._limit = _SLACK

    def __len__(self) -> int:
        return len(self._rows)

    def push(self, number: float, item: T) -> None:
        """Add an item."""
        heapq.heappush(self._rows, (number, next(self._count), item))
        if len(self._rows) > self._limit:
            self._rows = [row for row in self._rows if self._is_valid(row[0], row[2])]
            heapq.heapify(self._rows)
            self._limit = 2 * len(self._rows) + _SLACK

    def first(self) -> T | None:
        """Return the item with the lowest number."""
        while self._rows and not self._is_valid(self._rows[0][0], self._rows[0][2]):
            heapq.heappop(self._rows)
        return self._rows[0][2] if self._rows else None

    def lowest(self) -> float:
        """Return the lowest number; infinity without an item."""
        return self._rows[0][0] if self.first() is not None else math.inf

    def take(self) -> T:
        """Remove and return the item with the lowest number, which there is."""
        item = self.first()
        assert item is not None, "there is one"
        heapq.heappop(self._rows)
        return item
