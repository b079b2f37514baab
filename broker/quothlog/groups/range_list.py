"""A list of ranges in the order of their pointers, in which a change in the middle moves few of them.

    blocks:  [range range range] [range range] [range range range]
    lasts:                  ▲            ▲                  ▲     the last pointer of each block

A full block is divided, an empty one is removed.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Generic, NamedTuple, Protocol, TypeVar

BLOCK_MAX = 1_000
"""Ranges of a block: to move so many takes less time than to find one."""


class Ranged(Protocol):
    """The pointers in (after, until]."""

    after: int
    until: int


R = TypeVar("R", bound=Ranged)


class RangePlace(NamedTuple):
    """The place of a range: the number of its block, and its row there."""

    block: int
    row: int


class RangeList(Generic[R]):
    """Ranges that do not overlap. Owned by one thread."""

    __slots__ = ("_block_max", "_blocks", "_lasts", "_untils")

    def __init__(self, block_max: int = BLOCK_MAX) -> None:
        self._block_max = block_max
        self._blocks: list[list[R]] = []
        self._untils: list[list[int]] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[R]:
        return chain.from_iterable(self._blocks)

    @property
    def first(self) -> R | None:
        """The range with the lowest pointers."""
        return self._blocks[0][0] if self._blocks else None

    @property
    def last(self) -> R | None:
        """The range with the highest pointers."""
        return self._blocks[-1][-1] if self._blocks else None

    def place(self, pointer: int) -> RangePlace:
        """Return the place of the first range that ends at a pointer or above, else behind all."""
        block = bisect_left(self._lasts, pointer)
        if block == len(self._blocks):
            return RangePlace(block, 0)
        return RangePlace(block, bisect_left(self._untils[block], pointer))

    def between(self, after: int, until: int, limit: int = sys.maxsize) -> list[R]:
        """Return the first ranges, at most so many, with pointers in (after, until]."""
        found: list[R] = []
        block, row = self.place(after + 1)
        while block < len(self._blocks):
            members = self._blocks[block]
            for number in range(row, len(members)):
                one = members[number]
                if one.after >= until or len(found) == limit:
                    return found
                found.append(one)
            block, row = block + 1, 0
        return found

    def append(self, last: R) -> None:
        """Add a range behind all others."""
        if not self._blocks or len(self._blocks[-1]) >= self._block_max:
            self._blocks.append([last])
            self._untils.append([last.until])
            self._lasts.append(last.until)
        else:
            self._blocks[-1].append(last)
            self._untils[-1].append(last.until)
            self._lasts[-1] = last.until

    def replace(self, place: RangePlace, count: int, ranges: Sequence[R]) -> None:
        """Replace so many ranges of a block, from a place on, by others: also the same with other bounds."""
        block, row = place
        members, untils = self._blocks[block], self._untils[block]
        members[row : row + count] = ranges
        untils[row : row + count] = [one.until for one in ranges]
        if not members:
            del self._blocks[block], self._untils[block], self._lasts[block]
        elif len(members) > self._block_max:
            self._divide(block)
        else:
            self._lasts[block] = untils[-1]

    def remove(self, ranges: Sequence[R]) -> None:
        """Remove ranges, which are in order."""
        done = 0
        while done < len(ranges):
            before = done
            place = self.place(ranges[done].until)
            members, row = self._blocks[place.block], place.row
            while done < len(ranges) and row < len(members) and members[row] is ranges[done]:
                done, row = done + 1, row + 1
            assert done > before, "the range is here"
            self.replace(place, done - before, ())

    def _divide(self, block: int) -> None:
        members, untils = self._blocks[block], self._untils[block]
        half = len(members) // 2
        self._blocks[block : block + 1] = members[:half], members[half:]
        self._untils[block : block + 1] = untils[:half], untils[half:]
        self._lasts[block : block + 1] = untils[half - 1], untils[-1]
