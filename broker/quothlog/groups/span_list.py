"""A list of spans in the order of their pointers, in which a change in the middle moves few of them.

    blocks:  [span span span] [span span] [span span span span]
    lasts:               ▲           ▲                      ▲     the last pointer of each block

A full block is divided, an empty one is removed.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from quothlog.groups.spans import Span

BLOCK_MAX = 1_000
"""Spans of a block: to move so many takes less time than to find one."""


class SpanPlace(NamedTuple):
    """The place of a span: the number of its block, and its row there."""

    block: int
    row: int


class SpanList:
    """Spans that do not overlap. Owned by the thread that has the topic's token."""

    __slots__ = ("_block_max", "_blocks", "_lasts", "_untils")

    def __init__(self, block_max: int = BLOCK_MAX) -> None:
        self._block_max = block_max
        self._blocks: list[list[Span]] = []
        self._untils: list[list[int]] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[Span]:
        return chain.from_iterable(self._blocks)

    @property
    def first(self) -> Span | None:
        """The span with the lowest pointers."""
        return self._blocks[0][0] if self._blocks else None

    @property
    def last(self) -> Span | None:
        """The span with the highest pointers."""
        return self._blocks[-1][-1] if self._blocks else None

    def place(self, pointer: int) -> SpanPlace:
        """Return the place of the first span that ends at a pointer or above; behind all if there is none."""
        block = bisect_left(self._lasts, pointer)
        if block == len(self._blocks):
            return SpanPlace(block, 0)
        return SpanPlace(block, bisect_left(self._untils[block], pointer))

    def between(self, after: int, until: int, limit: int = sys.maxsize) -> list[Span]:
        """Return the first spans, at most so many, with pointers in (after, until]."""
        found: list[Span] = []
        block, row = self.place(after + 1)
        while block < len(self._blocks):
            members = self._blocks[block]
            for number in range(row, len(members)):
                span = members[number]
                if span.after >= until or len(found) == limit:
                    return found
                found.append(span)
            block, row = block + 1, 0
        return found

    def append(self, span: Span) -> None:
        """Add a span behind all others."""
        if self._blocks:
            last = len(self._blocks) - 1
            self.replace(SpanPlace(last, len(self._blocks[last])), 0, [span])
        else:
            self._blocks, self._untils, self._lasts = [[span]], [[span.until]], [span.until]

    def replace(self, place: SpanPlace, count: int, spans: Sequence[Span]) -> None:
        """Replace so many spans of a block, from a place on, by others: also the same with other bounds."""
        block, row = place
        members, untils = self._blocks[block], self._untils[block]
        members[row : row + count] = spans
        untils[row : row + count] = [span.until for span in spans]
        if not members:
            del self._blocks[block], self._untils[block], self._lasts[block]
        elif len(members) > self._block_max:
            self._divide(block)
        else:
            self._lasts[block] = untils[-1]

    def remove(self, spans: Sequence[Span]) -> None:
        """Remove spans, which are in order."""
        done = 0
        while done < len(spans):
            before = done
            place = self.place(spans[done].until)
            members, row = self._blocks[place.block], place.row
            while done < len(spans) and row < len(members) and members[row] is spans[done]:
                done, row = done + 1, row + 1
            assert done > before, "the span is here"
            self.replace(place, done - before, ())

    def _divide(self, block: int) -> None:
        members, untils = self._blocks[block], self._untils[block]
        half = len(members) // 2
        self._blocks[block : block + 1] = members[:half], members[half:]
        self._untils[block : block + 1] = untils[:half], untils[half:]
        self._lasts[block : block + 1] = untils[half - 1], untils[-1]
