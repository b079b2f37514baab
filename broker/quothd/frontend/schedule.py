"""Keeps the times, or other numbers, at which something is due."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")
_SLACK = 16


class Schedule(Generic[Item]):
    """Items with a due each. Those that are due later are not looked at.

    Rows of a heap whose due is not that of their item any more stay until they are too many.
    """

    __slots__ = ("_dues", "_numbers", "_rows")

    def __init__(self) -> None:
        self._dues: dict[Item, float] = {}
        self._rows: list[tuple[float, int, Item]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._dues)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._dues)

    def plan(self, item: Item, due: float) -> None:
        """Let an item be due at another time; never, if that is infinite."""
        if self._dues.get(item) == due:
            return
        if due == math.inf:
            self.cancel(item)
            return
        self._dues[item] = due
        heapq.heappush(self._rows, (due, next(self._numbers), item))
        if len(self._rows) > 2 * len(self._dues) + _SLACK:
            self._rows = [row for row in self._rows if self._dues.get(row[2]) == row[0]]
            heapq.heapify(self._rows)

    def plan_earlier(self, item: Item, due: float) -> None:
        """Let an item be due at a time, unless it is due before."""
        if due < self._dues.get(item, math.inf):
            self.plan(item, due)

    def cancel(self, item: Item) -> None:
        """Let an item not be due."""
        self._dues.pop(item, None)

    def take_due(self, now: float, most: float = math.inf) -> list[Item]:
        """Remove and return the items that are due, those with the lowest due first."""
        taken: list[Item] = []
        while len(taken) < most and (due := self.next_due()) is not None and due <= now:
            item = heapq.heappop(self._rows)[2]
            del self._dues[item]
            taken.append(item)
        return taken

    def next_due(self) -> float | None:
        """Return the lowest due."""
        while self._rows and self._dues.get(self._rows[0][2]) != self._rows[0][0]:
            heapq.heappop(self._rows)
        return self._rows[0][0] if self._rows else None
