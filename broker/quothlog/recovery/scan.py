"""Walks over the batches of a segment, and over bytes that are no batch.

A batch is taken only if its header checks with the log's id and its pointers and ordinals lie behind those
of the batch before it, so neither a repeated batch nor one inside a value nor one of another log is taken.
Where no batch lies, the next one is searched for by magic, checksums and order: the bytes between are a
`Hole`. With `bodies` every body's checksum is verified too, as it has to be where a crash may have torn it.

The log's id is no secret, so a value can hold what looks like this log's next batch. Hence a header that
checks where a batch has to begin is believed how far its batch reaches, even if the body is torn or damaged:
nothing in there is searched. So bytes that are lost from the middle of a file cost every batch that begins
within the length that the cut one had.

A batch behind which records are missing may stand where another one stood, after blocks of the disk were
mixed up; taking it would mean to pass over all that really follows. The headers behind it tell: if more of
them can be had in order without it than with it, it is the one that is out of place.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from quothlog.file_format import LogPosition
from quothlog.index import INDEX_STEP_BYTES
from quothlog.storage.filesystem import File
from quothwire import batch
from quothwire.batch import Flag, Header
from quothwire.errors import QuothError
from quothwire.pointer import POINTER_MAX

_SEARCH_BYTES = 2**20
_TRANSACTION, _UNFINISHED = int(Flag.TRANSACTION), int(Flag.TRANSACTION | Flag.END)
_WITNESSES = 64
"""Headers that decide whether a batch is out of place: more than a block of 4 KiB can hold."""


class Found(NamedTuple):
    """A batch at an offset."""

    offset: int
    header: Header

    @property
    def end(self) -> LogPosition:
        """The boundary behind it."""
        return LogPosition(self.offset + self.header.size, self.header.last, self.header.end_ordinal)


class Hole(NamedTuple):
    """Bytes from `start` to `end` that are no batch of this log."""

    start: int
    end: int


def walk(
    file: File,
    start: LogPosition,
    end: int,
    log_id: int,
    *,
    bodies: bool = False,
    below: int = POINTER_MAX + 1,
) -> Iterator[Found | Hole]:
    """Walk from a boundary up to the offset `end`. Holes and batches cover every byte between.

    below: where the next segment begins: a batch with that pointer or a higher one is out of place.
    """
    window = _Window(file, end, log_id, _SEARCH_BYTES if bodies else INDEX_STEP_BYTES, below)
    here = start
    while here.offset < end:
        header = window.batch_at(here.offset, here, body=bodies)
        if header is None:
            found = window.next_batch(here)
            yield Hole(here.offset, found.offset if found else end)
            if found is None:
                return
        else:
            found = Found(here.offset, header)
        yield found
        here = found.end


def batches(
    file: File, start: LogPosition, end: int, log_id: int, *, below: int = POINTER_MAX + 1
) -> Iterator[Found]:
    """Yield the batches only, without the damage between them."""
    return (step for step in walk(file, start, end, log_id, below=below) if isinstance(step, Found))


def is_open(header: Header) -> bool:
    """Return True if another batch of the same transaction has to follow this one."""
    return header.flags & _UNFINISHED == _TRANSACTION


def are_of_one(header: Header, other: Header) -> bool:
    """Return True if two batches, one of which is of a transaction, are of the same one."""
    return (header.producer, header.sequence) == (other.producer, other.sequence)


def settled(steps: Iterable[Found | Hole], ordinal: int, *, lost_power: bool) -> Iterator[Found | Hole]:
    """Yield the steps through an active segment, without an incomplete transaction at its end.

    That is a hole, with all that lies around it. Where others follow it, it was synced, so it was whole once.
    ordinal: that of the first record. lost_power: batches before the last one may be missing too.
    """
    held: list[Found | Hole] = []
    began: Header | None = None
    is_broken = False
    for step in steps:
        if isinstance(step, Hole):
            held.append(step)
            continue
        header = step.header
        if began is not None and not are_of_one(header, began):
            yield from held
            held, began, is_broken = [], None, False
        held.append(step)
        if header.flags & _TRANSACTION:
            began = header
            is_broken = is_broken or (lost_power and header.ordinal != ordinal)
        if not is_open(header) and not is_broken:
            yield from held
            held, began = [], None
        ordinal = header.end_ordinal
    if began is None:
        yield from held
    else:
        yield Hole(_range(held[0]).start, _range(held[-1]).end)


def _range(step: Found | Hole) -> Hole:
    """The bytes that it takes."""
    return step if isinstance(step, Hole) else Hole(step.offset, step.end.offset)


def newest_pointer_in(file: File, start: int, end: int, log_id: int) -> int:
    """The highest pointer of any header of this log from a boundary on, 0 if there is none."""
    window = _Window(file, end, log_id, _SEARCH_BYTES)
    newest = 0
    while (header := window.header_at(start)) is not None:
        newest = max(newest, header.last)
        start += header.size
    return max(newest, max((header.last for _, header in window.headers(start)), default=0))


def parts(file: File, hole: Hole) -> Iterator[bytes]:
    """Yield the bytes of a range of a file, a megabyte at a time."""
    for offset in range(hole.start, hole.end, _SEARCH_BYTES):
        yield file.read(min(_SEARCH_BYTES, hole.end - offset), offset)


def is_zero(file: File, hole: Hole) -> bool:
    """Return True for bytes that are all zero, as some file systems leave them behind."""
    return not any(part.strip(b"\0") for _, part in _data_in(file, hole))


def without_zeros(file: File, hole: Hole) -> Hole | None:
    """Return a range without the zeros at its end; None if it has nothing else.

    Up to a megabyte of zeros stays: they may belong to what is in front of them.
    """
    end = hole.start
    for offset, part in _data_in(file, hole):
        if size := len(part.rstrip(b"\0")):
            end = offset + size
    if end == hole.start:
        return None
    return hole if hole.end - end <= _SEARCH_BYTES else Hole(hole.start, end)


def _data_in(file: File, hole: Hole) -> Iterator[tuple[int, bytes]]:
    """Yield the offsets and bytes of a range, a megabyte at a time, without the parts that have no blocks."""
    offset = file.data_from(hole.start)
    while offset < hole.end and (part := file.read(min(_SEARCH_BYTES, hole.end - offset), offset)):
        yield offset, part
        offset = file.data_from(offset + len(part))


def same_bytes(a: File, here: Hole, b: File, there: Hole) -> bool:
    """Return True if two ranges of two files hold the same bytes."""
    if here.end - here.start != there.end - there.start:
        return False
    return all(one == other for one, other in zip(parts(a, here), parts(b, there), strict=True))


class _Window:
    """A moving view of a file that finds the headers of one log: one read serves many small looks."""

    def __init__(self, file: File, end: int, log_id: int, size: int, below: int = POINTER_MAX + 1) -> None:
        self._file = file
        self._below = below
        self._end = end
        self._log_id = log_id
        self._size = size
        self._base = 0
        self._data = b""

    def view(self, offset: int, size: int) -> memoryview:
        """`size` bytes at an offset, fewer only at the end."""
        size = min(size, self._end - offset)
        skip = offset - self._base
        if skip < 0 or skip + size > len(self._data):
            self._data = self._file.read(min(max(size, self._size), self._end - offset), offset)
            self._base, skip = offset, 0
        return memoryview(self._data)[skip : skip + size]

    def header_at(self, offset: int, after: LogPosition | None = None) -> Header | None:
        """The header at an offset if it checks and follows the position `after`."""
        if offset >= self._end:
            return None
        try:
            header = batch.parse_header(self.view(offset, batch.HEADER_BYTES), self._log_id)
        except QuothError:
            return None
        if after is None:
            return header
        is_next = header.base > after.pointer and header.ordinal >= after.ordinal
        return header if is_next and header.last < self._below else None

    def batch_at(self, offset: int, after: LogPosition, *, body: bool) -> Header | None:
        """The header of the batch at an offset if it checks, is all there and follows `after`."""
        header = self.header_at(offset, after)
        if header is None or offset + header.size > self._end:
            return None
        if header.ordinal != after.ordinal and self._is_out_of_place(offset, header, after):
            return None
        try:
            if body:
                batch.check(self.view(offset, header.size), self._log_id)
        except QuothError:
            return None
        return header

    def next_batch(self, after: LogPosition) -> Found | None:
        """Search for the next batch behind a position at which no whole one begins."""
        cut = self.header_at(after.offset, after)
        for offset, _ in self.headers(after.offset + (cut.size if cut else 1)):
            header = self.batch_at(offset, after, body=True)
            if header is not None:
                return Found(offset, header)
        return None

    def headers(self, start: int) -> Iterator[tuple[int, Header]]:
        """Every header of the log from an offset on, wherever it lies."""
        offset = start
        while (offset := self._file.data_from(offset)) < self._end:
            data = bytes(self.view(offset, _SEARCH_BYTES))
            at = data.find(batch.MAGIC)
            while at >= 0:
                head = self.view(offset + at, batch.HEADER_BYTES)
                if batch.is_stamped(head, self._log_id):
                    with contextlib.suppress(QuothError):
                        yield offset + at, batch.parse_header(head, self._log_id)
                at = data.find(batch.MAGIC, at + 1)
            if len(data) < _SEARCH_BYTES:
                return
            offset += len(data) - len(batch.MAGIC) + 1

    def chain(self, start: int) -> Iterator[Header]:
        """Headers from a boundary on: each behind the batch before it, or the next to be found."""
        while start < self._end:
            header = self.header_at(start)
            if header is None:
                start, header = next(self.headers(start + 1), (self._end, None))
            if header is not None:
                yield header
                start += header.size

    def _is_out_of_place(self, offset: int, header: Header, after: LogPosition) -> bool:
        """Return True if more batches follow each other without this one, which has a gap before it."""
        witnesses = islice(self.chain(offset + header.size), _WITNESSES)
        bases = [one.base for one in witnesses if one.base > after.pointer and one.ordinal >= after.ordinal]
        return 1 + _longest_rise([base for base in bases if base > header.last]) < _longest_rise(bases)


def _longest_rise(numbers: list[int]) -> int:
    """Return the length of the longest rising subsequence."""
    ends: list[int] = []
    for number in numbers:
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
    return len(ends)
