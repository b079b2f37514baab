"""Range queries: how far so many records reach, what a range holds, where to divide it.

Pointers are times, so their differences say nothing. Those of ordinals do: a batch says how many records
came before it. Where ordinals are left out between two batches, the bytes between them are damaged, and count
as one piece of records that are there and cannot be read.

    (after, until]     ├──────────── records, by ordinals ────────────┤
    ...│ batch │ batch │ batch │ batch │▒ damaged ▒│ batch │ batch │ batch │...
           ├──────── bytes, by offsets: whole batches ────────────┤

A query reads a few header blocks, then the sparse index of the segments in which its ends lie and one step of
headers behind that. To count bytes, it needs the beginning and the end of every segment between the ends:
they are read once, and remembered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from quothlog.file_format import LogPosition
from quothlog.index import INDEX_STEP_BYTES
from quothlog.reading.segment_reader import SegmentView
from quothlog.recovery.scan import Found, batches
from quothlog.segment import Segment
from quothwire import batch
from quothwire.pointer import POINTER_MAX

UNBOUNDED = 2**64
SHARES_MAX = 2
"""How many times its share a part of several batches may hold."""
SHARES_NEAR = 1.05
"""A part that ends with a segment may hold so many: to divide a segment takes a look into its index, which
costs a millisecond where it is not open."""
LOOKS_MAX = 256
"""As long as more parts than this are left, they may hold `SHARES_MAX` for that."""

T = TypeVar("T")


class RangeSize(NamedTuple):
    """The records above the pointer `after` up to `until`, and the stored bytes of their batches."""

    after: int
    until: int
    records: int
    bytes: int


class RangeCount(NamedTuple):
    """The contents of a range. first, last: pointers of records that are there, 0 if none can be read."""

    records: int
    bytes: int
    first: int
    last: int


class FileRange(NamedTuple):
    """The stored bytes of whole batches in one segment: where they lie in its file, and how many they are."""

    path: Path
    offset: int
    length: int


class _Edge(NamedTuple):
    """A boundary between batches: in which segment, and the position there."""

    row: int
    offset: int
    pointer: int
    ordinal: int


class _Piece(NamedTuple):
    """A batch, or damaged bytes in which records are missing, between two edges."""

    lower: _Edge
    upper: _Edge
    is_batch: bool


class _Cut(NamedTuple):
    """A pointer among the batches: the ordinal of what follows it, and the edges before and behind the batch
    that it divides. They are one if it divides none."""

    ordinal: int
    before: _Edge
    behind: _Edge


class LogSurvey:
    """A log as it was at one moment. Queries run in any thread, one at a time.

    newest, end: how far readers could see, as a pointer and as an ordinal.
    """

    def __init__(self, segments: list[Segment], visible: LogPosition) -> None:
        """segments: all that a query may need, oldest first; the last one ends at `visible`."""
        self.newest = visible.pointer
        self.end = visible.ordinal
        self._segments = segments
        self._visible = visible
        self._oldest = -1
        self._looked: tuple[int, SegmentView] | None = None

    @property
    def at_hand(self) -> bool:
        """True if it is the active segment alone."""
        return len(self._segments) == 1

    def advance(self, after: int, records_max: int, bytes_max: int) -> tuple[RangeSize, int]:
        """Return the longest range above a pointer within both limits, and the records gone before it.

        The bytes may exceed their limit for the first batch, and both may for damaged bytes.
        """
        return self._ask(lambda: self._advance(after, records_max, bytes_max))

    def count(self, after: int, until: int) -> tuple[RangeCount, int]:
        """Count what lies above one pointer up to another one, and the most that may be gone of it."""
        return self._ask(lambda: self._count(after, until))

    def split(self, after: int, until: int, parts: int) -> tuple[list[RangeSize], int]:
        """Divide a range between batches into at most so many parts; also return how many records are gone.

        None of them holds more than twice as many records as all of them on average, unless it is one batch.
        """
        return self._ask(lambda: self._split(after, until, parts))

    def files(self, after: int, until: int) -> list[FileRange]:
        """Return where the batches lie that hold the records of a range, a row for each segment."""
        return self._ask(lambda: self._files(after, until))

    # -- the queries ------------------------------------------------------------------------------------

    def _ask(self, query: Callable[[], T]) -> T:
        """Execute a query; again on what is left, if retention removes segments meanwhile."""
        while True:
            try:
                return query()
            except FileNotFoundError:
                left = [one for one in self._segments if not one.removed]
                if len(left) == len(self._segments):
                    raise
                self._segments, self._oldest, self._looked = left, -1, None

    def _advance(self, after: int, records_max: int, bytes_max: int) -> tuple[RangeSize, int]:
        after, gone = self._kept(after)
        start = self._cut(after)
        ordinal = min(start.ordinal + records_max, self.end)
        if ordinal == start.ordinal:
            return RangeSize(after, after, 0, 0), gone
        within = self._within(start.before, bytes_max, ordinal).ordinal
        if within <= start.ordinal:
            within = self._above(after).upper.ordinal
        until, stop = self._until(start.ordinal, min(ordinal, within))
        return RangeSize(
            after, until, stop.ordinal - start.ordinal, self._bytes(start.before, stop.behind)
        ), gone

    def _count(self, after: int, until: int) -> tuple[RangeCount, int]:
        after, gone = self._kept(after)
        start, stop = self._cut(after), self._cut(min(until, self.newest))
        if stop.ordinal <= start.ordinal:
            return RangeCount(0, 0, 0, 0), gone
        piece = self._above(after)
        while not piece.is_batch and piece.upper.ordinal < stop.ordinal:
            piece = self._above(piece.upper.pointer)
        first = max(after, piece.lower.pointer) + 1 if piece.is_batch else 0
        piece = self._holding(stop.ordinal - 1)
        while not piece.is_batch and piece.lower.ordinal > start.ordinal:
            piece = self._holding(piece.lower.ordinal - 1)
        last = piece.lower.pointer + min(stop.ordinal, piece.upper.ordinal) - piece.lower.ordinal
        size = self._bytes(start.before, stop.behind)
        return RangeCount(stop.ordinal - start.ordinal, size, first, last if first else 0), gone

    def _split(self, after: int, until: int, parts: int) -> tuple[list[RangeSize], int]:
        after, gone = self._kept(after)
        until = min(until, self.newest)
        start, stop = self._cut(after), self._cut(until)
        share = (stop.ordinal - start.ordinal) / parts
        ordinal, edge = start.ordinal, start.before
        found: list[RangeSize] = []
        while ordinal < stop.ordinal:
            divided = self._divided(ordinal, stop.ordinal, parts - len(found), share)
            if divided is None:
                last = RangeSize(after, until, stop.ordinal - ordinal, self._bytes(edge, stop.behind))
                return [*found, last], gone
            size = self._bytes(edge, divided)
            found.append(RangeSize(after, divided.pointer, divided.ordinal - ordinal, size))
            after, ordinal, edge = divided.pointer, divided.ordinal, divided
        return found, gone

    def _files(self, after: int, until: int) -> list[FileRange]:
        after, _ = self._kept(after)
        start, stop = self._cut(after), self._cut(min(until, self.newest))
        if stop.ordinal <= start.ordinal:
            return []
        spans = self._spans(start.before, stop.behind)
        return [FileRange(self._segments[row].path, *span) for row, *span in spans if span[1] > 0]

    def _divided(self, begin: int, end: int, left: int, share: float) -> _Edge | None:
        """Return where the next of the `left` parts between two ordinals ends; None: at the second ordinal.

        share: the records of a part on average. A part ends behind the batch that brings it to its share of
        what is left. If that would make two shares of it or more, it ends in front of this batch. Then the
        next one has all of it, so that the two of them hold more than two shares: the parts will do.
        """
        wanted = begin + -(-(end - begin) // left)
        if wanted >= end:
            return None
        row = self._row_of_ordinal(wanted - 1)
        if (following := self._following(row)) is not None:
            edge = self._begin(following)
            near = share * (SHARES_MAX if left > LOOKS_MAX else SHARES_NEAR)
            if edge.ordinal == wanted or edge.ordinal - begin <= near:
                return edge if edge.ordinal < end else None
        piece = self._holding(wanted - 1)
        if min(piece.upper.ordinal, end) - begin > share * SHARES_MAX and piece.lower.ordinal > begin:
            return piece.lower
        return piece.upper if piece.upper.ordinal < end else None

    # -- places -----------------------------------------------------------------------------------------

    def _kept(self, after: int) -> tuple[int, int]:
        """Return where the kept records above a pointer begin, and how many are gone before that."""
        first = self._begin(self._first_row())
        return (first.pointer, first.ordinal) if after < first.pointer else (after, 0)

    def _cut(self, pointer: int) -> _Cut:
        piece = self._above(pointer)
        lower, upper, is_batch = piece
        inside = pointer - lower.pointer
        if not is_batch or inside <= 0:
            return _Cut(lower.ordinal, lower, lower)
        return _Cut(lower.ordinal + inside, lower, upper)

    def _until(self, begin: int, ordinal: int) -> tuple[int, _Cut]:
        """Return the pointer of the last record before an ordinal, for a range that begins at another one."""
        end = self._end()
        if ordinal >= end.ordinal:
            return end.pointer, _Cut(end.ordinal, end, end)
        lower, upper, is_batch = self._holding(ordinal - 1)
        if is_batch:
            return lower.pointer + ordinal - lower.ordinal, _Cut(ordinal, lower, upper)
        # No pointer lies inside of what is damaged: it ends in front of it, or takes all of it.
        edge = lower if begin < lower.ordinal and ordinal < upper.ordinal else upper
        return edge.pointer, _Cut(edge.ordinal, edge, edge)

    def _within(self, start: _Edge, bytes_max: int, ordinal: int) -> _Edge:
        """The last boundary so many bytes behind an edge; any behind an ordinal is as good as the end."""
        row, offset, left = start.row, start.offset, bytes_max
        while left >= (size := self._segments[row].stop - offset):
            following = self._following(row)
            if following is None:
                return self._end()
            begin = self._begin(following)
            if begin.ordinal >= ordinal:
                return begin
            row, offset, left = following, begin.offset, left - size
        here, _ = self._place(row, LogPosition(offset + left, POINTER_MAX, UNBOUNDED))
        return _Edge(row, *here)

    def _bytes(self, start: _Edge, stop: _Edge) -> int:
        """The stored bytes between two edges, without header blocks and footers."""
        return sum(length for _, _, length in self._spans(start, stop))

    def _spans(self, start: _Edge, stop: _Edge) -> Iterator[tuple[int, int, int]]:
        """Yield the bytes between two edges, as row, offset and length in each segment."""
        row, offset = start.row, start.offset
        while row != stop.row:
            yield row, offset, max(0, self._segments[row].stop - offset)
            following = self._following(row)
            assert following is not None
            row, offset = following, self._start(following).offset
        yield row, offset, stop.offset - offset

    # -- pieces -----------------------------------------------------------------------------------------

    def _above(self, pointer: int) -> _Piece:
        """The piece that holds the first record above a pointer; behind the newest one nothing, twice."""
        row = self._row_of_pointer(pointer)
        return self._piece(row, LogPosition(UNBOUNDED, pointer, UNBOUNDED))

    def _holding(self, ordinal: int) -> _Piece:
        """The piece that holds the record of an ordinal, which is kept."""
        row = self._row_of_ordinal(ordinal)
        return self._piece(row, LogPosition(UNBOUNDED, POINTER_MAX, ordinal))

    def _piece(self, row: int, bound: LogPosition) -> _Piece:
        """The piece behind the last boundary within a bound, in a segment or behind it."""
        while True:
            here, found = self._place(row, bound)
            lower, following = _Edge(row, *here), None
            if found is not None:
                header = found.header
                upper = _Edge(row, found.offset, header.base - 1, header.ordinal)
            else:
                following = self._following(row)
                upper = self._end() if following is None else self._begin(following)
            is_beyond = upper.pointer > bound.pointer or upper.ordinal > bound.ordinal
            if lower.ordinal < upper.ordinal and is_beyond:
                return _Piece(lower, upper, is_batch=False)
            if found is not None:
                return _Piece(upper, _Edge(row, *found.end), is_batch=True)
            if following is None:
                return _Piece(upper, upper, is_batch=False)
            row = following

    def _place(self, row: int, bound: LogPosition) -> tuple[LogPosition, Found | None]:
        """The last boundary of a segment that a bound does not lie in front of, and the batch behind it."""
        view = self._view(row)
        log_id, below = self._segments[row].log_id, view.below
        here = min(view.sparse.before(bound.pointer), view.sparse.leap(bound.offset, bound.ordinal))
        if here == view.sparse.start:
            here = self._start(row)
        size = min(INDEX_STEP_BYTES, min(bound.offset, view.end.offset) - here.offset)
        if size > 0:
            data = view.file.read(size, here.offset)
            limits = min(bound.pointer, below - 1), bound.ordinal
            passed, last, ordinal = batch.whole(data, log_id, here.pointer, here.ordinal, *limits)
            here = LogPosition(here.offset + passed, last, ordinal)
        for found in batches(view.file, here, view.sight, log_id, below=below):
            end = found.end
            if end.offset > bound.offset or end.pointer > bound.pointer or end.ordinal > bound.ordinal:
                return here, found
            here = end
        return here, None

    # -- segments ---------------------------------------------------------------------------------------

    def _view(self, row: int) -> SegmentView:
        if self._looked is None or self._looked[0] != row:
            self._looked = row, self._segments[row].view()
        return self._looked[1]

    def _start(self, row: int) -> LogPosition:
        start = self._segments[row].begin
        assert start is not None, "a segment that tells nothing is passed over"
        return start

    def _begin(self, row: int) -> _Edge:
        return _Edge(row, *self._start(row))

    def _end(self) -> _Edge:
        return _Edge(len(self._segments) - 1, *self._visible)

    def _row_of_pointer(self, pointer: int) -> int:
        row = self._located(bisect_right(self._segments, pointer + 1, key=lambda one: one.floor) - 1)
        while row > self._first_row() and pointer < self._start(row).pointer:
            row = self._located(row - 1)  # the damage before its first batch is counted from there
        return row

    def _row_of_ordinal(self, ordinal: int) -> int:
        rows = range(len(self._segments))
        first = self._first_row()
        return self._located(bisect_right(rows, ordinal, lo=first, key=self._ordinal_at) - 1)

    def _ordinal_at(self, row: int) -> int:
        return self._start(self._located(row)).ordinal

    def _first_row(self) -> int:
        """The oldest segment with a known place."""
        if self._oldest < 0:
            self._oldest = next(row for row in range(len(self._segments)) if self._is_located(row))
        return self._oldest

    def _located(self, row: int) -> int:
        """The segment, or the last one before it with a known place."""
        first = self._first_row()
        while row > first and not self._is_located(row):
            row -= 1
        return max(row, first)

    def _following(self, row: int) -> int | None:
        """The next segment with a known place."""
        rows = range(row + 1, len(self._segments))
        return next((row for row in rows if self._is_located(row)), None)

    def _is_located(self, row: int) -> bool:
        """True for a segment of this log whose place its header block or its first batch shows."""
        one = self._segments[row]
        return not one.is_misplaced and one.begin is not None
