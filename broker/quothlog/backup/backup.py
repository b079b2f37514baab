"""A log up to a moment as files that never change, copied beside its owner without a lock, see `snapshot`.

    FLOOR-HASH.seg      a segment, whole, or up to the end of its last batch that counts
    FLOOR-HASH.idx      the index of a whole one

FLOOR is the smallest pointer that it can hold, HASH the xxh3-64 of the file in hex. Another content has
another name, so a file is never written to again, and what is there already is not copied twice.

A batch belongs to the moment of its first record. Damaged bytes are copied as they are, and
reported. Segments that retention removes meanwhile are left out, with all segments before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64

from quothlog import file_format
from quothlog.file_format import LogPosition
from quothlog.recovery.scan import Found, Hole, are_of_one, batches, is_open, parts
from quothlog.recovery.snapshot import DISK, Part, segments
from quothlog.recovery.verify import Advance, Damage, verified
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.filesystem import TEMPORARY_SUFFIX, File, FileSystem, PosixFileSystem, write_durably
from quothwire.batch import Header
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX

_NAME = re.compile(r"(\d{17})-([0-9a-f]{16})(\.seg|\.idx)")


class KeptFile(NamedTuple):
    """A file of an archive. hash: xxh3-64 of its bytes."""

    floor: int
    bytes: int
    hash: int
    suffix: str = file_format.SEGMENT_SUFFIX

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.floor:017d}-{self.hash:016x}{self.suffix}"

    def check(self, directory: Path) -> None:
        """Read and verify it. Raises `Damaged` if it has changed."""
        path = directory / self.name
        try:
            file = DISK.open(path)
            size, found = file.size(), xxh3_64()
            for part in parts(file, Hole(0, size)) if size == self.bytes else ():
                found.update(part)
        except FileNotFoundError:
            raise error("damaged", f"{path} is missing") from None
        except OSError as problem:
            raise error("damaged", f"{path} cannot be read: {problem.strerror}") from None
        if (size, found.intdigest()) != (self.bytes, self.hash):
            raise error("damaged", f"{path} does not check")


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """A segment of an archive and its index, if that has been kept."""

    segment: KeptFile
    index: KeptFile | None

    @property
    def files(self) -> list[KeptFile]:
        """Both, or the one."""
        return [self.segment] if self.index is None else [self.segment, self.index]


@dataclass
class Archive:
    """A log up to a moment. until: that moment as a pointer. last: its last pointer, 0 for none.

    first_ordinal, end_ordinal: those of its first record and behind its last one. newest: the highest pointer
    that was seen in the log then, in the archive or not.
    """

    until: int
    newest: int = 0
    last: int = 0
    first_ordinal: int = 0
    end_ordinal: int = 0
    segments: list[KeptSegment] = field(default_factory=list)

    @property
    def records(self) -> int:
        """Number of its records, those included that cannot be read."""
        return self.end_ordinal - self.first_ordinal

    @property
    def files(self) -> list[KeptFile]:
        """All its files, oldest first."""
        return [file for one in self.segments for file in one.files]

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.bytes for file in self.files)


class Archiver:
    """Copies one log into a folder; `archive` has its content then, `copied` the number of new bytes.

    log_id: that of the log. until: the moment, as a pointer. exact: else everything counts that is there in a
    log whose newest pointer lies ahead of the clock, or records that a reader has seen would be missing; and
    a transaction in which the moment lies, whole. Raises OSError, FileNotFoundError if there is no log,
    `Damaged` if no segment says which one it is.
    """

    def __init__(
        self,
        log: Path,
        log_id: int,
        target: Path,
        until: int,
        *,
        exact: bool,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._filesystem = filesystem or PosixFileSystem()
        self._log = log
        self._log_id = log_id
        self._target = target
        newest = _newest(log, log_id)
        is_ahead = newest > (clock or SystemClock()).now()
        if not exact:
            until = newest if is_ahead else _whole(log, log_id, until)
        self.archive = Archive(until, newest)
        self.copied = 0
        self._end: LogPosition | None = None
        self._filesystem.make_directory(target)
        self._there: dict[int, list[KeptFile]] = {}
        for name, size in self._filesystem.list(target).items():
            if match := _NAME.fullmatch(name):
                kept = KeptFile(int(match[1]), size, int(match[2], 16), match[3])
                self._there.setdefault(kept.floor, []).append(kept)

    def run(self, advance: Advance) -> Iterator[Damage]:
        """Copy; yields the damage that it finds. Raises OSError."""
        yield from self._take_all(advance)
        while self._is_overtaken():
            yield from self._take_all(advance)

    def _take_all(self, advance: Advance) -> Iterator[Damage]:
        self.archive.segments.clear()
        self._end = None
        for part in segments(self._log, self._log_id):
            if not part.misplaced and (part.floor <= self.archive.until or not self.archive.segments):
                self._mind_the_gap(part)
                yield from self._take(part, advance)

    def _is_overtaken(self) -> bool:
        """Return True if retention has meanwhile removed all that was copied, and more."""
        first = next((part.expected or 0 for part in segments(self._log, self._log_id)), 0)
        return self._end is not None and first > self._end.ordinal

    def _mind_the_gap(self, part: Part) -> None:
        """Begin the archive with this segment if retention has removed what lay before it."""
        segments = self.archive.segments
        if self._end is not None and part.expected != self._end.ordinal:
            before = self._log / file_format.segment_name(segments[-1].segment.floor)
            if not before.exists():
                segments.clear()
        if not segments:
            self.archive.first_ordinal = part.expected or 0

    def _take(self, part: Part, advance: Advance) -> Iterator[Damage]:
        """Take in a segment as far as it counts; one that is there already is not read again."""
        until, footer = self.archive.until, part.footer
        whole = footer is not None and footer.end.pointer <= until
        end, size = footer.end if footer else part.start, part.size
        kept = self._find(part, size) if whole else None
        if kept is None:
            end = part.start
            for step in verified(part, advance):
                if isinstance(step, Damage):
                    yield step
                elif isinstance(step, Found):
                    if step.header.base > until:
                        whole, size = False, end.offset
                        break
                    end = step.end
            if footer is not None and whole:
                end = footer.end
            elif part.last:
                size = end.offset
            kept = self._find(part, size) or self._keep(
                part.file, size, part.floor, file_format.SEGMENT_SUFFIX
            )
        else:
            advance(size)
        self.archive.segments.append(KeptSegment(kept, self._keep_index(part) if whole else None))
        self.archive.last, self.archive.end_ordinal = end.pointer, end.ordinal
        self._end = end

    def _find(self, part: Part, size: int) -> KeptFile | None:
        """This segment up to there, if it is in the folder: one that begins and ends with the same bytes."""
        head = min(size, part.block.size if part.block else file_format.BLOCK_BYTES)
        ends = ((head, 0), (file_format.FOOTER_BYTES, max(0, size - file_format.FOOTER_BYTES)))
        for kept in self._there.get(part.floor, ()):
            if (kept.bytes, kept.suffix) == (size, file_format.SEGMENT_SUFFIX):
                file = self._filesystem.open(self._target / kept.name)
                same = all(file.read(*one) == part.file.read(*one) for one in ends)
                file.close()
                if same:
                    return kept
        return None

    def _keep_index(self, part: Part) -> KeptFile | None:
        if part.segment.checkpoint() is None:
            return None
        try:
            file = DISK.open(part.segment.index_path)
        except FileNotFoundError:
            return None
        kept = self._keep(file, file.size(), part.floor, file_format.INDEX_SUFFIX)
        file.close()
        return kept

    def _keep(self, file: File, size: int, floor: int, suffix: str) -> KeptFile:
        found, whole = xxh3_64(), Hole(0, size)
        for piece in parts(file, whole):
            found.update(piece)
        kept = KeptFile(floor, size, found.intdigest(), suffix)
        if kept not in self._there.get(floor, ()):
            write_durably(self._filesystem, self._target / kept.name, parts(file, whole))
            self.copied += size
        return kept


def discard(filesystem: FileSystem, target: Path, archive: Archive) -> None:
    """Remove from the folder of an archive those files of archives that are no part of it."""
    listed = {file.name for file in archive.files}
    for name in filesystem.list(target):
        if name not in listed and _NAME.fullmatch(name.removesuffix(TEMPORARY_SUFFIX)):
            filesystem.remove(target / name)


def _newest(log: Path, log_id: int) -> int:
    """The highest pointer that readers may find in a log, or that it may have given out."""
    newest = 0
    for part in segments(log, log_id, POINTER_MAX - 1):
        if part.misplaced:
            continue
        newest = max(newest, part.floor - 1)
        for found in batches(part.file, part.start, part.size, part.log_id):
            newest = max(newest, found.end.pointer)
        point = part.segment.claim()
        newest = max(newest, point.end.pointer if point is not None else 0)  # of records that are lost now
    return newest


def _whole(log: Path, log_id: int, until: int) -> int:
    """A moment, or if it lies in a transaction, the first pointer of the last batch of that."""
    last: Header | None = None
    for part in segments(log, log_id, max(0, until - 1)):
        for found in batches(part.file, part.start, part.size, part.log_id, below=part.below):
            goes_on = last is not None and is_open(last) and are_of_one(last, found.header)
            if found.header.base > until and not goes_on:
                return max(until, last.base) if last is not None else until
            last = found.header
    return until if last is None or is_open(last) else max(until, last.base)
