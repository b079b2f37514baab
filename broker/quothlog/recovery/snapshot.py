"""Reads the segments of a directory as they are at a moment, without its lock.

Three promises of the writer make that possible: a segment has its name only when its header block is
complete, what has been written of a batch is a prefix of it, and only the end of the last segment ever
changes. So each file is opened once and looked at up to the size that it has at that moment. A segment that
retention removes between the listing and the opening is passed over; once open, it stays readable.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from quothlog import file_format, segment
from quothlog.file_format import Block, Footer, LogPosition
from quothlog.recovery.strays import strays_among
from quothlog.segment import Segment
from quothlog.storage.clock import SystemClock
from quothlog.storage.filesystem import File, PosixFileSystem, refuse_strange
from quothlog.transactions.commit_plan import CommitPlan, read_plan
from quothwire.errors import Damaged, QuothError, error
from quothwire.pointer import POINTER_MAX

DISK = PosixFileSystem()


def holds(directory: Path, log_id: int) -> bool:
    """Return True if a segment in a directory says that it is one of this log."""
    try:
        return listing(directory, log_id).log_id == log_id
    except (FileNotFoundError, Damaged):
        return False


def logs_in(directory: Path) -> set[int]:
    """The ids that the header blocks of a directory's segments say."""
    said = set()
    for floor in _listed(directory):
        file = _open(directory, floor)
        if file is not None:
            with contextlib.suppress(QuothError):
                said.add(segment.read_block(file).log_id)
            file.close()
    return said


class Steady:
    """A file as large as it was when it was opened: what is cut off meanwhile reads as zeros."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = file = DISK.open(path)
        self._size = file.size()
        self.append, self.sync, self.truncate, self.close = file.append, file.sync, file.truncate, file.close
        self.overwrite = file.overwrite

    def read(self, size: int, offset: int) -> bytes:
        """See `File.read`. Raises ``storage_failed`` with the file's path."""
        size = max(0, min(size, self._size - offset))
        try:
            return self._file.read(size, offset).ljust(size, b"\0")
        except OSError as problem:
            raise error("storage_failed", f"{self.path}: {problem.strerror}") from problem

    def read_at_hand(self, size: int, offset: int) -> None:
        """See `File.read_at_hand`."""

    def size(self) -> int:
        """See `File.size`."""
        return self._size

    def was_cut(self, end: int) -> bool:
        """Return True if the file was cut below this offset."""
        return self._file.size() < end


class Part(NamedTuple):
    """One segment while it is looked at.

    block: None if it does not check, and if it says that this is another segment: then it is misplaced.
    before: where the one before it ends, following: where the next one begins, each by its pointer and its
    ordinal; None where that is not known. below: what all its pointers lie below.
    """

    path: Path
    log_id: int
    floor: int
    file: Steady
    size: int
    block: Block | None
    footer: Footer | None
    last: bool
    before: LogPosition | None
    following: LogPosition | None
    below: int
    misplaced: bool

    @property
    def start(self) -> LogPosition:
        """The boundary before its first batch; without a valid header block, the beginning of the file."""
        return self.block.start if self.block else LogPosition(0, self.floor - 1, 0)

    @property
    def expected(self) -> int | None:
        """The ordinal that it should begin with."""
        start = self.block.start if self.block else self.before
        return start.ordinal if start else None

    @property
    def end(self) -> LogPosition | None:
        """The boundary behind its last batch, as far as footer or next segment say."""
        return self.footer.end if self.footer else self.following

    @property
    def missing(self) -> int:
        """Records between it and the one before it."""
        if self.before is None or self.expected is None:
            return 0
        return max(0, self.expected - self.before.ordinal)


class Listing(NamedTuple):
    """The segments of a log by their floors, oldest first, as its directory listed them at a moment."""

    directory: Path
    log_id: int
    floors: Sequence[int]


def segments(directory: Path, wanted: int, after: int = 0) -> Iterator[Part]:
    """The segments that may hold records above a pointer, each open until the next one is asked for."""
    listed = listing(directory, wanted)
    yield from _parts(listed, range(_first_row(listed, after), len(listed.floors)), None)


def segments_in(listed: Listing, rows: range) -> Iterator[Part]:
    """Some of the segments of a listing, likewise; the first of them knows the one before it.

    So several readers can look at a log in pieces, and report the same as one reader of all of it.
    """
    yield from _parts(listed, rows, _before(listed, rows.start))


def _before(listed: Listing, row: int) -> Part | None:
    """The segment before a row; files that only bear the name of one are passed over."""
    for earlier in reversed(range(row)):
        part = next(_parts(listed, range(earlier, earlier + 1), None), None)
        if part is None or not part.misplaced:
            return part
    return None


def _parts(listed: Listing, rows: range, before: Part | None) -> Iterator[Part]:
    """The segments in some rows. before: the one before them, None if that is not known."""
    directory, log_id, floors = listed
    for row in rows:
        file = _open(directory, floors[row])
        if file is None:
            before = None
            continue
        try:
            one = Segment(DISK, directory, floors[row], log_id, file.size())
            block, misplaced = _block(file, one)
            footer = None if misplaced else one.footer(file)
            following, below = _following(listed, row)
            part = Part(
                file.path, log_id, floors[row], file, file.size(), block, footer, row + 1 == len(floors),
                before.end if before else None, following, below, misplaced,
            )  # fmt: skip
            yield part
            before = before if misplaced else part
        finally:
            file.close()


def listing(directory: Path, wanted: int) -> Listing:
    """List the segments of a log; again if all of them were removed meanwhile.

    wanted, and the errors: as in `verify.summaries`.
    """
    log_id = None
    while log_id is None:
        floors = floors_in(directory, wanted)
        if not floors:
            raise FileNotFoundError(errno.ENOENT, "no segment of a log", str(directory))
        log_id = _log_id(directory, floors, wanted)
    return Listing(directory, log_id, floors)


def floors_in(directory: Path, log_id: int = 0) -> list[int]:
    """The floors of the segments: of regular files that bear the name of one, and can be one of the log.

    Those of a large transaction get their names one after the other, behind a segment that is there already.
    So a listing counts if no plan was there behind it, and no other one has found what this one has missed.
    log_id: that of the log, 0 if it is not known.
    """
    listed = _listed(directory)
    while True:
        plan = _plan_in(directory)
        again = _listed(directory)
        newest = max(listed, default=0)
        if not listed or not {floor for floor in again if floor < newest} - {*listed}:
            if plan is not None:
                listed = {floor: size for floor, size in listed.items() if floor < plan.names[0][1]}
            return sorted({*listed} - {*_strays_among(directory, listed, log_id)})
        listed = again


def strays_in(directory: Path, log_id: int = 0) -> list[str]:
    """Return the names of files that are named like segments and that an opening would quarantine."""
    return [*map(file_format.segment_name, _strays_among(directory, _listed(directory), log_id))]


def _strays_among(directory: Path, sizes: Mapping[int, int], log_id: int) -> list[int]:
    """The floors, lowest first, whose files are strays. sizes: of all segments' files, by their floors."""
    floors = sorted(sizes)
    log_id = log_id or _said_first(directory, floors)

    def make(floor: int) -> Segment:
        return Segment(DISK, directory, floor, log_id, sizes[floor])

    return strays_among(floors, make, SystemClock())


def _said_first(directory: Path, floors: list[int]) -> int:
    """The id of the log that the oldest segment says which says its own name, 0 if none does."""
    for floor in floors:
        with contextlib.suppress(QuothError, FileNotFoundError):
            log_id, said, _ = file_format.named_in(
                DISK.open(directory / file_format.segment_name(floor)).read(file_format.BLOCK_BYTES, 0)
            )
            if said == floor:
                return log_id
    return 0


def _plan_in(directory: Path) -> CommitPlan | None:
    try:
        return read_plan(DISK, directory)
    except Damaged:
        return None
    except OSError as problem:
        raise error("storage_failed", f"{directory / file_format.PLAN_NAME}: {problem.strerror}") from problem


def _listed(directory: Path) -> dict[int, int]:
    """The floors and sizes of the files that are called like segments.

    Raises ``storage_failed`` if one is no regular file, or OSError.
    """
    for name in filter(file_format.floor_of, DISK.strange(directory)):
        refuse_strange(DISK, directory / name)
    return {
        floor: size for name, size in DISK.list(directory).items() if (floor := file_format.floor_of(name))
    }


def _first_row(listed: Listing, after: int) -> int:
    """The segment that holds the first record above a pointer, if any does."""
    directory, log_id, floors = listed
    row = max(0, bisect_right(floors, after + 1) - 1)
    while row and Segment(DISK, directory, floors[row], log_id, 0).is_misplaced:
        row -= 1
    return row


def _following(listed: Listing, row: int) -> tuple[LogPosition | None, int]:
    """Return where the segment behind a row begins, and the exclusive upper bound of the row's pointers."""
    directory, log_id, floors = listed
    following: list[LogPosition | None] = []
    for later in range(row + 1, len(floors)):
        file = _open(directory, floors[later])
        if file is None:
            continue
        block, misplaced = _block(file, Segment(DISK, directory, floors[later], log_id, file.size()))
        file.close()
        if not misplaced:
            following.append(block.start if block else None)
        if block is not None:
            return following[0], floors[later]
    return None, POINTER_MAX + 1


def _open(directory: Path, floor: int) -> Steady | None:
    """A segment's file, None if it was removed after the listing."""
    try:
        return Steady(directory / file_format.segment_name(floor))
    except FileNotFoundError:
        return None


def _log_id(directory: Path, floors: list[int], wanted: int) -> int | None:
    """The id that is wanted if a header block says it, else that of the oldest one which names its own file,
    else the oldest one that is said; None if none of the segments is there any more."""
    said, damaged = None, False
    for floor in floors:
        file = _open(directory, floor)
        if file is None:
            continue
        try:
            block = segment.read_block(file)
            said = said or block.log_id
            if block.log_id == wanted or (not wanted and block.floor == floor):
                return block.log_id
        except Damaged:
            damaged = True
        finally:
            file.close()
    if damaged and said is None:
        raise error("damaged", f"no segment in {directory} has a header block that checks")
    return said


def _block(file: File, one: Segment) -> tuple[Block | None, bool]:
    """The header block of a segment's file, None if it does not check or belongs to another one; and is it
    the latter?"""
    try:
        block = segment.read_block(file)
    except Damaged:
        return None, False
    belongs = (block.log_id, block.floor) == (one.log_id, one.floor)
    return (block, False) if belongs else (None, True)
