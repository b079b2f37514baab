"""A directory of slabs as the source of an import, whose records keep their addresses.

Slabs hold no times, so the records of one get consecutive pointers that end before its last change. The same
files give the same pointers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quothlog.importing.source import (
    Advance,
    ImportedRecord,
    ImportFinding,
    ImportSource,
    Report,
    SourceFile,
    not_imported,
    shown_path,
)
from quothlog.slabs.slab_format import RECORD_HEADER_BYTES, SlabGap, SlabRecord, address_in
from quothlog.slabs.slab_reader import NOTHING_FOLLOWS, SlabReader
from quothwire.errors import error

FORMAT = "slab"


@dataclass(frozen=True)
class SlabLog:
    """The log of a directory. starts: the addresses of its slabs, ascending; files: the slabs."""

    directory: Path
    starts: Sequence[int]
    files: Sequence[SourceFile]
    topic: str = ""
    original: str = ""

    def records(self, advance: Advance, report: Report) -> Iterator[ImportedRecord]:
        """Yield all records; each gap is a finding. See `LogSource.records`."""
        pointer = 0
        with SlabReader(self.directory, finished=True) as reader:
            for found in reader:
                if isinstance(found, SlabRecord):
                    file = self.files[row := bisect_right(self.starts, found.address) - 1]
                    pointer = max(pointer + 1, _first_pointer(file))
                    offset = found.address - self.starts[row]
                    yield ImportedRecord(pointer, found.value, file.path, offset, found.address)
                else:
                    report(self._finding(found))
                if isinstance(found, SlabRecord) or found.reason == "damaged":
                    advance(found.next - found.address)

    def _finding(self, gap: SlabGap) -> ImportFinding:
        """Describe a gap. Slabs removed before the first one, and an unfinished end, are no damage."""
        where = f"{gap.next - gap.address} bytes from address {gap.address} on"
        if gap.text == NOTHING_FOLLOWS and gap.next == self.starts[-1] + self.files[-1].bytes:
            text = (
                f"{where}, at the end, are no whole record: a writer had not finished it; they were left out"
            )
            return ImportFinding(f"{shown_path(self.directory)}: {text}")
        is_damage = gap.reason == "damaged" or gap.next != self.starts[0]
        return ImportFinding(f"{shown_path(self.directory)}: {where}: {gap.text}", is_damage)


def _first_pointer(file: SourceFile) -> int:
    """Return a pointer from which on a slab's records, of 9 bytes or more, end before its last change."""
    return max(1, file.changed_ns // 1_000 - file.bytes // (RECORD_HEADER_BYTES + 1))


def open_slabs(path: Path) -> ImportSource:
    """List the slabs of a directory.

    Raises OSError, or `RequestError` ``bad_request`` if there are none.
    """
    listed = list(path.iterdir())
    slabs = sorted((start, one) for one in listed if (start := address_in(one.name)) is not None)
    if not slabs:
        text = f"{shown_path(path)} holds no slab of queuefka: 20 digits and .slab"
        raise error("bad_request", text, "give the directory that is queuefka's topic")
    starts, files = zip(*slabs, strict=True)
    others = [one.name for one in listed if address_in(one.name) is None]
    findings = not_imported(path, others, "no slab")
    log = SlabLog(path, starts, [SourceFile.at(file) for file in files])
    return ImportSource(path, FORMAT, has_topics=False, logs=[log], findings=findings)
