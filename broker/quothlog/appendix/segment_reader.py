"""Reads one segment: its data file from the first byte to the last, and its index beside it, if there is one.

Where no whole record begins, the data ends: with what a writer had not finished if this is the newest
segment, a record may have begun there, and none ends exactly with the data; else with damage. If the index
lists a record behind that which the data has, too, reading goes on there, and what lies in between is
damaged. A writer appends to the data first, so records that the index lists where the data has ended were
there, and are lost: that is damage, too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

from quothlog.appendix.index_file import IndexComparison
from quothlog.appendix.segment_format import (
    HEADER_BYTES,
    POINTER_BYTES,
    ends_with_record,
    index_name,
    pointer_at,
    size_at,
)
from quothlog.importing.source import (
    VALUE_BYTES_MAX,
    Advance,
    ImportedRecord,
    ImportFinding,
    Report,
    SourceFile,
    counted,
    shown_path,
)
from quothlog.recovery.snapshot import DISK
from quothlog.storage.filesystem import File, FileSystem
from quothwire.errors import error
from quothwire.text.paths import naming

_WINDOW_BYTES = 2**20
"""Bytes that are read at a time; more only for one record that is larger."""

_new = tuple.__new__
"""Makes a named tuple of a row, in half the time of a call of its class."""


@dataclass(frozen=True, slots=True)
class AppendixSegment:
    """The files of one segment. is_newest: what a writer had not finished may stand at its end."""

    data: SourceFile
    index: SourceFile | None
    is_newest: bool = True

    @property
    def files(self) -> list[SourceFile]:
        """Its files that are read."""
        return [self.data] if self.index is None else [self.data, self.index]

    def records(
        self, advance: Advance, report: Report, filesystem: FileSystem = DISK
    ) -> Iterator[ImportedRecord]:
        """Yield its records as the data file has them; pointers may be anything.

        Reads no byte behind the size that the files had when they were listed. Raises `RequestError`
        ``too_large``, or OSError.
        """
        with ExitStack() as opened:
            opened.enter_context(naming(self.data.path))
            data = opened.enter_context(closing(filesystem.open(self.data.path)))
            index = None
            if self.index is not None and self.index.bytes:
                file = opened.enter_context(closing(filesystem.open(self.index.path)))
                index = IndexComparison(file, self.index.bytes)
            yield from _SegmentReader(self, data, index, advance, report).records()


class _SegmentReader:
    """One reading of a segment."""

    def __init__(
        self,
        segment: AppendixSegment,
        data: File,
        index: IndexComparison | None,
        advance: Advance,
        report: Report,
    ) -> None:
        self._segment = segment
        self._path = segment.data.path
        self._size = segment.data.bytes
        self._data = data
        self._index = index
        self._advance = advance
        self._advanced = 0
        self._report = report
        self._last = 0
        """The pointer of the last whole record."""

    def records(self) -> Iterator[ImportedRecord]:
        """Yield all records that can be read; report the rest."""
        begin = 0
        while True:
            end = yield from self._whole_records(begin)
            self._advance_to(end)
            if end == self._size:
                break
            begin = self._record_behind(end)
            if begin < 0:
                self._report_end(end)
                break
            self._report_gap(end, begin)
        if self._index is not None:
            self._index.end(end)
            self._advance(self._segment.index.bytes if self._segment.index is not None else 0)
        self._report_index()

    def _whole_records(self, begin: int) -> Generator[ImportedRecord, None, int]:
        """Yield records from an offset on; returns the offset where none begins that is whole."""
        path, index, needed = self._path, self._index, HEADER_BYTES
        while begin < self._size:
            window = self._data.read(min(max(_WINDOW_BYTES, needed), self._size - begin), begin)
            at, end = 0, len(window)
            if end < needed:  # so few are left, or the file was cut meanwhile
                return begin
            needed = HEADER_BYTES
            while end - at >= HEADER_BYTES:
                size = size_at(window, at)
                following = at + 4 + size
                if size < POINTER_BYTES or begin + following > self._size:
                    return begin + at
                if size > POINTER_BYTES + VALUE_BYTES_MAX:
                    self._check_too_large(begin + at, size)
                    return begin + at
                if following > end:
                    needed = 4 + size
                    break
                pointer = self._last = pointer_at(window, at)
                if index is not None:
                    index.compare(begin + at, pointer)
                value = window[at + HEADER_BYTES : following]
                yield _new(ImportedRecord, (pointer, value, path, begin + at, None))
                at = following
            begin += at
            self._advance_to(begin)
        return begin

    def _check_too_large(self, offset: int, size: int) -> None:
        """Raise ``too_large`` unless a record stands within this one, so that its size must be wrong."""
        if not offset < self._record_behind(offset) < offset + 4 + size:
            text = f"the record at byte {offset} of {shown_path(self._path)} has {size - POINTER_BYTES} bytes"
            hint = "no log here can hold it: it has to be stored in parts"
            raise error("too_large", f"{text}, at most {VALUE_BYTES_MAX}", hint)

    def _record_behind(self, offset: int) -> int:
        """Return the offset of the first record behind this one that the index knows, -1 if there is none."""
        found = self._index.find_record(self._data, self._size, offset) if self._index is not None else None
        return -1 if found is None else found

    def _advance_to(self, offset: int) -> None:
        if offset > self._advanced:
            self._advance(offset - self._advanced)
            self._advanced = offset

    def _report_end(self, offset: int) -> None:
        left = self._size - offset
        self._advance_to(self._size)
        where = (
            f"{shown_path(self._path)}: {left} bytes at the end, from byte {offset} on, are no whole record"
        )
        if self._segment.is_newest and self._may_be_unfinished(offset):
            self._report(ImportFinding(f"{where}: a writer had not finished it; they were left out"))
        else:
            self._report(ImportFinding(f"{where}; they were left out", is_damage=True))

    def _may_be_unfinished(self, offset: int) -> bool:
        """Return True if a record that can be may have begun there: a writer writes its bytes in order.

        A record that ends exactly with the data was written whole, and behind a size that must be wrong.
        """
        head = self._data.read(min(4, self._size - offset), offset)
        if len(head) < 4:
            return True
        if not POINTER_BYTES <= size_at(head, 0) <= POINTER_BYTES + VALUE_BYTES_MAX:
            return False
        return not ends_with_record(self._data.read(self._size - offset, offset), self._last)

    def _report_gap(self, begin: int, end: int) -> None:
        what = "are no record; the index knows the next one; they were left out"
        text = f"{shown_path(self._path)}: bytes {begin} to {end} {what}"
        self._report(ImportFinding(text, is_damage=True))

    def _report_index(self) -> None:
        """Report in which ways the index differs from the data."""
        index, listed = self._index, self._segment.index
        if index is None:
            if self._size and (listed is None or not listed.bytes):
                lost = "is missing" if listed is None else "is empty"
                path = self._path.with_name(index_name(self._path.name))
                self._report(ImportFinding(f"{shown_path(path)} {lost}; the data was read without it"))
            return
        assert listed is not None
        differences = []
        if index.odd_bytes:
            differences.append(f"ends with {index.odd_bytes} bytes of an entry")
        if index.missing:
            differences.append(f"lacks {counted(index.missing, 'record')}")
        if index.wrong:
            wrong = counted(index.wrong, "entry", "entries")
            first = f"the first one is entry {index.first_wrong}"
            differences.append(f"has {wrong} without a record in the data, {first}")
        if differences:
            text = f"{shown_path(listed.path)} {', '.join(differences)}; the data decided"
            if index.lost:
                are = "is" if index.lost == 1 else "are"
                text += f", so {counted(index.lost, 'record')} behind its end {are} lost"
            self._report(ImportFinding(text, is_damage=index.lost > 0))
