"""Reads the segments of a directory as they are at a moment, without its lock.

Three promises of the writer make that possible: a segment has its name only when its header block is
complete, what has been written of a batch is a prefix of it, and only the end of the last segment ever
changes. So each file is opened once and looked at up to the size that it has at that moment. A segment that
retention removes between the listing and the opening is passed over; once open, it stays readable.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from quothlog import file_format, segment
from quothlog.file_format import Block, Footer, LogPosition
from quothlog.recovery.false_segments import false_segments_among
from quothlog.sealed import SealedSegments
from quothlog.segment import Segment
from quothlog.storage.clock import SystemClock
from quothlog.storage.filesystem import File, PosixFileSystem, refuse_strange
from quothlog.transactions.commit_plan import CommitPlan, read_plan
from quothwire.errors import Damaged, error

DISK = PosixFileSystem()


def holds(directory: Path, log_id: int) -> bool:
    """Return True if a segment in a directory has the id of this log."""
    try:
        return listing(directory, log_id).log_id == log_id
    except (FileNotFoundError, Damaged):
        return False


def logs_in(directory: Path) -> set[int]:
    """The log ids in the header blocks of a directory's segments."""
    named = (Segment(DISK, directory, floor, 0, 0).named for floor in _listed(directory))
    return {one[0] for one in named if one is not None}


class Steady:
    """A file as large as it was when it was opened: what is cut off meanwhile reads as zeros."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = file = DISK.open(path)
        self._size = file.size()
        self.append, self.sync, self.truncate, self.close = file.append, file.sync, file.truncate, file.close
        self.overwrite, self.data_from = file.overwrite, file.data_from

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
    ordinal; None where that is not known.
    """

    segment: Segment
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
        """The boundary behind its last batch, from its footer or the next segment."""
        return self.footer.end if self.footer else self.following

    @property
    def is_indexed(self) -> bool:
        """True if its index agrees with it."""
        return self.segment.agreed_checkpoint(self.file) is not None

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
    row = SealedSegments(_linked(listing(directory, wanted)))
    yield from _parts(row[row.row_of(after) :], None)


def segments_in(listed: Listing, rows: range) -> Iterator[Part]:
    """Some of the segments of a listing, likewise; the first of them knows the one before it.

    So several readers can look at a log in pieces, and report the same as one reader of all of it.
    """
    row = _linked(listed)
    earlier = next((one for one in reversed(row[: rows.start]) if not one.is_misplaced), None)
    before = next(_parts([earlier], None), None) if earlier is not None else None
    yield from _parts(row[rows.start : rows.stop], before)


def _linked(listed: Listing) -> list[Segment]:
    return segment.linked(DISK, listed.directory, listed.log_id, dict.fromkeys(listed.floors, 0))


def _parts(row: Sequence[Segment], before: Part | None) -> Iterator[Part]:
    """Open some segments one by one. before: the one before them, None if that is not known."""
    for one in row:
        try:
            file = Steady(one.path)
        except FileNotFoundError:  # it was removed after the listing
            before = None
            continue
        try:
            one.size = file.size()
            block, misplaced = _block(file, one)
            part = Part(
                one, one.path, one.log_id, one.floor, file, one.size, block,
                None if misplaced else one.footer(file), one.following is None,
                before.end if before else None, _begin_of_next(one), one.below, misplaced,
            )  # fmt: skip
            yield part
            before = before if misplaced else part
        finally:
            file.close()


def _block(file: File, one: Segment) -> tuple[Block | None, bool]:
    """Read a segment's header block from its file: None if it does not check, or is that of another segment,
    and whether it is the latter."""
    try:
        block = segment.read_block(file)
    except Damaged:
        return None, False
    belongs = (block.log_id, block.floor) == (one.log_id, one.floor)
    return (block, False) if belongs else (None, True)


def _begin_of_next(one: Segment) -> LogPosition | None:
    """Return where the next segment of the log begins; None if that is not known, or if there is none."""
    following = one.following
    while following is not None and following.is_misplaced:
        following = following.following
    return following.begin if following is not None and following.is_named else None


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
            return sorted({*listed} - {*_false_segments_among(directory, listed, log_id)})
        listed = again


def false_segments_in(directory: Path, log_id: int = 0) -> list[str]:
    """Return the names of files that are named like segments and that an opening would quarantine."""
    return [*map(file_format.segment_name, _false_segments_among(directory, _listed(directory), log_id))]


def _false_segments_among(directory: Path, sizes: Mapping[int, int], log_id: int) -> list[int]:
    """The floors, lowest first, of false segments. sizes: of all files with names of segments, by floor."""
    if not log_id:  # the oldest segment that says its own name tells it
        named = ((floor, Segment(DISK, directory, floor, 0, 0).named) for floor in sorted(sizes))
        log_id = next((said[0] for floor, said in named if said is not None and said[1] == floor), 0)
    return false_segments_among(DISK, directory, log_id, sizes, SystemClock())


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
    return file_format.segment_sizes(DISK.list(directory))


def _log_id(directory: Path, floors: list[int], wanted: int) -> int | None:
    """The id that is wanted if a header block says it, else that of the oldest one which names its own file,
    else the oldest one that is said; None if none of the segments is there any more."""
    said, damaged = None, False
    for floor in floors:
        try:
            block = segment.read_block(Steady(directory / file_format.segment_name(floor)))
        except FileNotFoundError:  # it was removed after the listing
            continue
        except Damaged:
            damaged = True
            continue
        said = said or block.log_id
        if block.log_id == wanted or (not wanted and block.floor == floor):
            return block.log_id
    if damaged and said is None:
        raise error("damaged", f"no segment in {directory} has a header block that checks")
    return said
