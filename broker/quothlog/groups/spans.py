"""The records of a group that were handed out and are not finished, as ranges of pointers.

Spans lie between the pointer up to which all is finished and the cursor, in order, and do not overlap. What
lies between two spans is finished. A span covers the pointers in (after, until], of which its batches say
where there are records; so one span stands for any number of records, and acknowledging one in the middle
makes two of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple

from quothlog.groups.range_list import RangeList
from quothwire.pointer import POINTER_MAX

UNREAD = -1
"""The key of a span that was not read since a restart."""
RANGES_MAX = 400_000
"""Spans of a group: above it there are no new records for it, and no settlement divides one. So a snapshot of
the group fits into a batch of 16 MiB, at 33 bytes for each. They take 120 MB of memory."""
RANGES_DIVIDED_MAX = 450_000
"""Above it, no span is divided to be handed out again either. The difference is for a group that has reached
`RANGES_MAX`: it hands its records out again, in pieces, until they are finished."""
PART_OF = 4
"""A span that needs less than this part of the extents that it shares with others gets its own."""


class Extents:
    """The batches in which the records of a span lie: the first and the last pointer of each.

    start: a pointer in front of them behind which there is no other record.
    """

    __slots__ = ("_firsts", "_lasts", "start")

    def __init__(self, start: int, firsts: Sequence[int], lasts: Sequence[int]) -> None:
        self.start = start
        self._firsts = array("Q", firsts)
        self._lasts = array("Q", lasts)

    def pointers(self) -> Iterator[int]:
        """Yield the pointer of each record."""
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(first, last + 1)

    def clip(self, after: int, until: int) -> tuple[int, int]:
        """Return the first and the last pointer of the records in (after, until]; (0, 0) for none."""
        row = bisect_left(self._lasts, after + 1)
        end = bisect_left(self._firsts, until + 1) - 1
        if row > end:
            return 0, 0
        first, last = max(after + 1, self._firsts[row]), min(until, self._lasts[end])
        return (first, last) if first <= last else (0, 0)

    def count(self, after: int, until: int) -> int:
        """Count the records in (after, until]."""
        firsts, lasts = self._firsts, self._lasts
        row = bisect_left(lasts, after + 1)
        end = bisect_left(firsts, until + 1)
        if row >= end:
            return 0
        if end - row == 1:
            return max(0, min(until, lasts[row]) - max(after + 1, firsts[row]) + 1)
        inner = sum(lasts[row + 1 : end - 1]) - sum(firsts[row + 1 : end - 1]) + max(0, end - row - 2)
        head = lasts[row] - max(after + 1, firsts[row]) + 1
        return head + inner + min(until, lasts[end - 1]) - firsts[end - 1] + 1

    def part(self, after: int, until: int) -> Extents:
        """Return the extents for the records in (after, until], without most of the others if these are many.

        So a record that is left over of many does not keep the memory of all.
        """
        row = bisect_left(self._lasts, after + 1)
        end = bisect_left(self._firsts, until + 1)
        if (end - row) * PART_OF > len(self._firsts):
            return self
        return Extents(self.lead(after), self._firsts[row:end], self._lasts[row:end])

    def lead(self, after: int) -> int:
        """Return the lowest pointer that has no record between it and `after`, as far as that is known."""
        row = bisect_left(self._lasts, after + 1)
        if row == len(self._firsts) or after < self._firsts[row]:
            return min(after, self._lasts[row - 1] if row else self.start)
        return after


class SpanState(Enum):
    """The state of a span."""

    FREE = "free"
    """May be handed out again, once it is due."""
    LEASED = "leased"
    BLOCKED = "blocked"
    """Waits until an earlier record of its key is finished."""
    DYING = "dying"
    """To be written to the dead-letter topic."""
    GONE = "gone"
    """Finished, or replaced by its parts."""


@dataclass(slots=True, eq=False)
class Lease:
    """A lease of one member on records in (after, until].

    token: names it, and those that were cut from it. deadline: monotonic time. spans: how many have it still.
    planned: see `SpanQueue.plan`. deadline_max: up to which it may be extended.
    """

    token: int
    member: str
    deadline: float
    after: int
    until: int
    spans: int = 1
    planned: float = inf
    deadline_max: float = inf

    def part(self, spans: Sequence[Span]) -> Lease:
        """Return a lease for some of the spans that have this one, and for no others; it itself for all."""
        if len(spans) == self.spans:
            return self
        self.spans -= len(spans)
        bounds = spans[0].after, spans[-1].until
        part = Lease(
            self.token, self.member, self.deadline, *bounds, len(spans), deadline_max=self.deadline_max
        )
        for span in spans:
            span.lease = part
        return part


@dataclass(slots=True, eq=False)
class Span:
    """Records in (after, until] that are handed out and not finished.

    attempts: how often they were handed out. due: monotonic time of the next hand-out. extents: None if it is
    not known where the records lie. reason, member: why the last hand-out has failed, and to which member it
    was. number: of a dying span, in the order of the group's dead letters; 0 before it has one. key: hash of
    the key of its only record, in a group that keeps the order of keys; 0 for none, or `UNREAD`. counted: the
    number of its records, found without their places, -1 if they were not counted.
    """

    after: int
    until: int
    attempts: int
    state: SpanState = SpanState.FREE
    lease: Lease | None = None
    extents: Extents | None = None
    due: float = 0.0
    reason: str = ""
    member: str = ""
    number: int = 0
    key: int = 0
    counted: int = -1

    @property
    def records(self) -> int:
        """Number of its records, -1 if that is not known."""
        return self.extents.count(self.after, self.until) if self.extents is not None else -1

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last pointer of its records; those of its range if their places are not known."""
        if self.extents is None:
            return self.after + 1, self.until
        return self.extents.clip(self.after, self.until)

    def part(self, after: int, until: int) -> Span:
        """Return a span of the same kind about a part of the pointers."""
        return Span(
            after, until, self.attempts, self.state, self.lease,
            self.extents.part(after, until) if self.extents is not None else None,
            self.due, self.reason, self.member, self.number, self.key,
        )  # fmt: skip


class Cut(NamedTuple):
    """The spans between two pointers. made: the new ones in the table, inside and outside, by a split."""

    inside: list[Span]
    made: list[Span]


@dataclass(slots=True)
class SpanTable:
    """The spans of a group, in the order of their pointers.

    known: the records in the spans that say how many they hold. unknown: the number of the other spans.
    """

    known: int = 0
    unknown: int = 0
    _spans: RangeList[Span] = field(default_factory=RangeList)

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    @property
    def first(self) -> Span | None:
        """The span with the lowest pointers."""
        return self._spans.first

    def above(self, pointer: int, limit: int) -> list[Span]:
        """Return spans with records above a pointer."""
        spans = self._spans.between(pointer, POINTER_MAX, limit + 1)
        first = spans[0] if spans else None
        if first is not None and first.extents is not None and not first.extents.count(pointer, first.until):
            del spans[0]
        return spans[:limit]

    def dying(self) -> list[Span]:
        """Return the dying spans, in order."""
        return [span for span in self._spans if span.state is SpanState.DYING]

    def unread(self) -> list[Span]:
        """Return the spans of one record, waiting for an ack or a letter, of which the key was not read."""
        waiting = (one for one in self._spans if one.key == UNREAD and one.until - one.after == 1)
        return [one for one in waiting if one.state in (SpanState.LEASED, SpanState.DYING)]

    def append(self, span: Span) -> None:
        """Add a span behind all others."""
        last = self._spans.last
        assert last is None or last.until <= span.after, "spans do not overlap"
        self._spans.append(span)
        self._count(span, 1)

    def know(self, span: Span, extents: Extents) -> None:
        """Set the batches of a span, which are read again."""
        self._count(span, -1)
        if span.extents is not None:
            extents.start = span.extents.lead(span.after)
        span.extents = extents
        self._count(span, 1)

    def replace(self, span: Span, parts: Sequence[Span]) -> None:
        """Replace a span by others that cover its records."""
        self._spans.replace(self._spans.place(span.until), 1, parts)
        self._count(span, -1)
        for part in parts:
            self._count(part, 1)
        span.state = SpanState.GONE

    def cut(self, after: int, until: int) -> Cut:
        """Cut the spans at two pointers, so that each lies between them or outside.

        A span stays the same one, with narrower bounds, if only one of its parts has records, as far as that
        is known.
        """
        inside: list[Span] = []
        made: list[Span] = []
        for span in self.overlapping(after, until):
            if after <= span.after and span.until <= until:
                inside.append(span)
                continue
            parts = self._split(span, max(span.after, after), min(span.until, until))
            inside += [part for part in parts if after <= part.after and part.until <= until]
            made += [part for part in parts if part is not span]
        return Cut(inside, made)

    def growth(self, after: int, until: int, *, is_finished: bool) -> int:
        """Return by how many spans the table would grow if it were cut at two pointers.

        is_finished: the spans in between are removed then.
        """
        grown = 0
        for span in self.overlapping(after, until):
            begin, end = max(span.after, after), min(span.until, until)
            bounds = _divided(span, begin, end)
            grown += len(bounds) - 1 - (is_finished and not span.number and (begin, end) in bounds)
        return grown

    def remove(self, spans: Sequence[Span]) -> None:
        """Remove spans that follow each other in the table, perhaps with finished records in between."""
        self._spans.remove(spans)
        for span in spans:
            self._count(span, -1)
            span.state = SpanState.GONE

    def _count(self, span: Span, sign: int) -> None:
        records = span.records
        if records < 0:
            self.unknown += sign
        else:
            self.known += sign * records

    def _split(self, span: Span, after: int, until: int) -> list[Span]:
        """Cut a span at two pointers within it, and return its parts; a numbered one stays."""
        bounds = _divided(span, after, until)
        if bounds == [(span.after, span.until)]:
            return [span]
        place = self._spans.place(span.until)
        if len(bounds) == 1:
            ((span.after, span.until),) = bounds
            self._spans.replace(place, 1, [span])
            return [span]
        parts = [span.part(*each) for each in bounds]
        self._spans.replace(place, 1, parts)
        if span.lease is not None:
            span.lease.spans += len(parts) - 1
        if span.extents is None:
            self.unknown += len(parts) - 1
        span.state = SpanState.GONE
        return parts

    def overlapping(self, after: int, until: int) -> list[Span]:
        """Return the spans with pointers in (after, until]."""
        return self._spans.between(after, until)


def _divided(span: Span, after: int, until: int) -> list[tuple[int, int]]:
    """Return the bounds of the parts of a span that is cut at two pointers; a numbered one stays whole."""
    whole = [(span.after, span.until)]
    if span.number:
        return whole
    bounds = [
        (low, high)
        for low, high in ((span.after, after), (after, until), (until, span.until))
        if low < high and (span.extents is None or span.extents.count(low, high))
    ]
    return whole if len(bounds) > 1 and (after, until) not in bounds else bounds
