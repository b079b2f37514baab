"""Compares the index of a segment with its data, record by record, and finds records behind damage.

The data decides. An entry of the index counts only where the data has a record with the same pointer.
"""

from __future__ import annotations

from collections.abc import Iterator

from quothlog.appendix import segment_format
from quothlog.appendix.segment_format import ENTRY_BYTES, HEADER_BYTES, POINTER_BYTES
from quothlog.storage.filesystem import File

_ENTRIES = 4_096
"""Entries that are read at a time."""
_NONE = (-1, -1)
"""In the place of an entry behind the last one."""


class IndexComparison:
    """The index of one segment while its data is read. Give it each record, in order, then `end`.

    size: the bytes of the index. entries: the number of whole entries. odd_bytes: those behind the last one.
    missing: records that it does not list. wrong: entries to which no record belongs, the first one with the
    number `first_wrong`. lost: those of them that lead to the end of the whole records or
    behind it, and come behind the last one that the data agrees with.
    """

    def __init__(self, file: File, size: int) -> None:
        self.entries, self.odd_bytes = divmod(size, ENTRY_BYTES)
        self.missing = self.wrong = self.lost = 0
        self.first_wrong = -1
        self._file = file
        self._rows = self._read()
        self._number = -1
        self._following = next(self._rows, _NONE)
        self._next()

    def compare(self, offset: int, pointer: int) -> None:
        """Take in the record at an offset of the data."""
        while self._offset < offset and self._number < self.entries:
            self._reject()
        if self._offset != offset and self._following == (pointer, offset):
            self._reject()  # an entry that points too far must not hide all those behind it
        if self._offset == offset and self._pointer == pointer:
            self._next()
        else:
            self.missing += 1

    def find_record(self, data: File, size: int, above: int) -> int | None:
        """Return the offset of the first record above an offset that the index and the data agree on.

        size: of the data. Entries below it are passed over, and wrong. Returns None if there is none.
        """
        self.lost = 0
        while self._number < self.entries:
            if above < self._offset <= size - HEADER_BYTES:
                head = data.read(HEADER_BYTES, self._offset)
                if len(head) == HEADER_BYTES and segment_format.pointer_at(head, 0) == self._pointer:
                    record = segment_format.size_at(head, 0)
                    if record >= POINTER_BYTES and self._offset + 4 + record <= size:
                        self.lost = 0
                        return self._offset
            self.lost += self._offset >= above
            self._reject()
        return None

    def end(self, offset: int) -> None:
        """Count the entries that are left when the data ends, with whole records up to an offset."""
        while self._number < self.entries:
            self.lost += self._offset >= offset
            self._reject()

    def _reject(self) -> None:
        self._mark(1)
        self._next()

    def _mark(self, count: int) -> None:
        if not self.wrong:
            self.first_wrong = self._number
        self.wrong += count

    def _next(self) -> None:
        self._number += 1
        self._pointer, self._offset = self._following
        self._following = next(self._rows, _NONE)

    def _read(self) -> Iterator[tuple[int, int]]:
        for first in range(0, self.entries, _ENTRIES):
            count = min(_ENTRIES, self.entries - first)
            data = self._file.read(count * ENTRY_BYTES, first * ENTRY_BYTES)
            yield from segment_format.entries_of(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
