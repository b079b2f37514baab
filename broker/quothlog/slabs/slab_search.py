"""Searches one slab for the next record behind damage, by checksums alone."""

from __future__ import annotations

from collections.abc import Iterator

from quothlog.slabs.slab_format import (
    RECORD_HEADER_BYTES,
    VALUE_BYTES_MAX,
    candidates_in,
    header_at,
    xxh32,
)
from quothlog.storage.filesystem import Buffer, File

CREDIT_BYTES = 64 * 2**20
CREDIT_FACTOR = 16
"""A slab whose every byte looks like the header of a long record would cost the square of its size. So a
search may hash `CREDIT_BYTES` in a slab, and `CREDIT_FACTOR` bytes more for each that it goes on. It passes
over a record that is longer than what is left of that. A megabyte of such bytes takes less than a second."""
_CANDIDATE_BYTES = 64
"""What a candidate costs beside its length."""
BLOCK_BYTES, BLOCK_BYTES_MAX = 2**12, 2**20
"""Bytes of the first read behind damage, and of the largest; in between they double. Many damages that lie
close together would otherwise have the same bytes read again and again."""


class SlabSearch:
    """The search for records in one slab. undecided: the first offset that a larger file might decide."""

    def __init__(self, file: File) -> None:
        self.undecided = 0
        self._file = file
        self._credit = CREDIT_BYTES

    def is_record(self, offset: int, size: int) -> bool:
        """Return True if a record with a right checksum lies at an offset of the first `size` bytes."""
        head = self._file.read(RECORD_HEADER_BYTES, offset) if size - offset > RECORD_HEADER_BYTES else b""
        self._credit += len(head) * CREDIT_FACTOR
        return len(head) == RECORD_HEADER_BYTES and self._matches(head, 0, offset, size)

    def next_record(self, begin: int, size: int) -> int | None:
        """Return the offset of the first record from an offset on; None if there is none up to `size`."""
        return next((offset for offset, _ in self._records(begin, size)), None)

    def chain_to(self, begin: int, end: int) -> int | None:
        """Return the first offset from one on from which records lie side by side exactly up to `end`."""
        starts: dict[int, int] = {}  # of each chain, by the offset behind it
        for offset, behind in self._records(begin, end):
            start = starts.pop(offset, offset)
            starts[behind] = min(start, starts.get(behind, start))
        return starts.get(end)

    def _records(self, begin: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield the offset of each record from an offset on, and that behind it, in order."""
        at, room = begin, BLOCK_BYTES
        self.undecided = size
        while True:
            at = max(at, min(self._file.data_from(at), size) - RECORD_HEADER_BYTES)
            block = self._file.read(min(room, size - at), at)
            if len(block) < RECORD_HEADER_BYTES:
                break
            self._credit += CREDIT_FACTOR * len(block)
            for offset in candidates_in(block):
                if self._matches(block, offset, at, size):
                    yield at + offset, at + offset + RECORD_HEADER_BYTES + header_at(block, offset)[0]
            at += len(block) - RECORD_HEADER_BYTES + 1
            room = min(2 * room, BLOCK_BYTES_MAX)
        self.undecided = min(self.undecided, max(begin, at))

    def _matches(self, data: bytes, offset: int, at: int, size: int) -> bool:
        """Return True if a record begins at an offset of data which lies at an offset of the file."""
        length, check = header_at(data, offset)
        begin = offset + RECORD_HEADER_BYTES
        if not 0 < length <= VALUE_BYTES_MAX:
            return False
        if at + begin + length > size:
            self.undecided = min(self.undecided, at + offset)
            return False
        if length > self._credit:
            return False
        self._credit -= length + _CANDIDATE_BYTES
        value: Buffer = memoryview(data)[begin : begin + length]
        if len(value) < length:
            value = self._file.read(length, at + begin)
        return xxh32(value) == check
