"""Verifies a log that another process may be writing: takes no lock and writes nothing.

A cut batch at the end of the last segment is being written right now, or a crash has torn it: it is
`Unfinished`, and so is what the owner cuts off there meanwhile, and what a loss of power has left of bytes
that were not synced. Everything else that is no batch is `Damage`, and stepped over. The checkpoint of an
index covers synced bytes only: where the last segment ends before it, records are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from quothlog import file_format
from quothlog.file_format import LogPosition
from quothlog.recovery.scan import Found, Hole, is_open, is_zero, same_bytes, settled, walk
from quothlog.recovery.snapshot import DISK, Listing, Part, segments, segments_in
from quothlog.storage.clock import SystemClock
from quothwire import batch
from quothwire.errors import BrokerFailure, QuothError
from quothwire.record import Record, records_of

Advance = Callable[[int], None]
"""Called with the number of bytes that were looked at since the last call; it may take its time."""


class Wrong(StrEnum):
    """Kinds of damage."""

    BLOCK = "block"  # the header block does not check
    FOOTER = "footer"  # derived: the footer does not check, and no record is missing
    TORN = "torn"  # derived: a torn end that is quarantined, and is still to be cut off
    BYTES = "bytes"  # bytes that are no batch
    CUT = "cut"  # a batch that is not all there
    BODY = "body"  # a batch whose body does not check
    REPEATED = "repeated"  # a batch once more, or too late: nothing is missing in its place
    DISPLACED = "displaced"  # a batch where another one should be
    RECORDS = "records"  # records are missing, and nothing lies in their place
    SEGMENT = "segment"  # a whole segment is missing
    MISPLACED = "misplaced"  # a segment of another log, or a copy of another one
    OVERLAP = "overlap"  # records of a segment that the next one has, too, by their ordinals


_TEXTS = {
    Wrong.BLOCK: "no header block of this log",
    Wrong.FOOTER: "no footer of this log",
    Wrong.TORN: "a torn end that was quarantined",
    Wrong.BYTES: "no batch of this log",
    Wrong.CUT: "a batch that is not all there",
    Wrong.BODY: "a batch whose body does not check",
    Wrong.REPEATED: "a batch once more, or too late",
    Wrong.DISPLACED: "a batch where another one should be",
    Wrong.RECORDS: "nothing lies in their place",
}


_DERIVED = frozenset((Wrong.FOOTER, Wrong.TORN))


class Damage(NamedTuple):
    """A range of a file that is no batch of the log, and the records that are missing there.

    start, end: offsets in the file; equal where records are missing and no byte lies in their place, as where
    a whole segment is gone. records: how many are missing, -1 if that is unknown. ordinal: that of the first
    of them, -1 if unknown. Their pointers lie above `after` and below `next`, which is 0 if nothing is known
    of what follows. closed: what follows them in the file begins at once, a batch or the footer, as a repair
    leaves it: nothing can be done about it any more. text: for people, kind: for everyone else.
    """

    path: Path
    start: int
    end: int
    records: int
    ordinal: int
    after: int
    next: int
    text: str
    closed: bool = False
    kind: Wrong = Wrong.BYTES

    @property
    def is_derived(self) -> bool:
        """True if only a derived part is wrong, which an opening after a crash or a repair rebuilds."""
        return self.kind in _DERIVED


class Unfinished(NamedTuple):
    """A cut batch at the end of the last segment."""

    path: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One segment. first, last: pointers of its records, 0 if it holds none. bytes: the size of its file.

    ordinal: that of its first record, -1 if unknown. batches: -1 if they were not counted. sealed: it does
    not grow any more. indexed: its index agrees with it, so that readers use it. unfinished: bytes of a cut
    batch at its end.
    """

    path: Path
    log_id: int
    floor: int
    first: int
    last: int
    ordinal: int
    batches: int
    records: int
    bytes: int
    sealed: bool
    indexed: bool
    unfinished: int
    damages: tuple[Damage, ...]

    @property
    def unmended(self) -> list[Damage]:
        """The damages of data that no repair has dealt with."""
        return [damage for damage in self.damages if not damage.closed and not damage.is_derived]

    @property
    def derived(self) -> int:
        """Derived parts that are to be made anew: the footer, a torn end to be cut off, the index."""
        parts = sum(damage.is_derived for damage in self.damages)
        return parts + (self.sealed and not self.indexed)


def summaries(
    directory: Path,
    *,
    log_id: int = 0,
    quick: bool = False,
    sealed_only: bool = False,
    advance: Advance | None = None,
) -> Iterator[Summary]:
    """Summarize the segments of a log, oldest first.

    log_id: that of the log, if the directory holds segments of several; 0 for that of the oldest. Every byte
    is read and every checksum verified. quick: a sealed segment is believed its header block and its footer,
    and of the others only the headers are read. sealed_only: the last segment, which may be written to, is
    left out. advance: called again and again while bytes are verified. Raises FileNotFoundError if there is
    no log in this directory, `Damaged` if no segment says which log it belongs to.
    """
    for part in segments(directory, log_id):
        if sealed_only and part.last:
            return
        if quick:
            yield _believed(part) or _walked(part, _steps(part))
        else:
            yield _walked(part, verified(part, advance or (lambda _bytes: None)))


def summaries_in(listed: Listing, rows: range) -> Iterator[Summary]:
    """Summarize some segments of a listing, each with the same result as `summaries` of all of them."""
    for part in segments_in(listed, rows):
        yield _walked(part, verified(part, lambda _bytes: None))


def records(directory: Path, after: int = 0, *, log_id: int = 0) -> Iterator[Record | Damage | Unfinished]:
    """Records with pointers above `after`, oldest first, and what is damaged between them, in its place.

    Every batch is verified before its records are yielded. log_id, and the errors: as in `summaries`.
    """
    for part, step in steps(directory, after, log_id=log_id):
        if isinstance(step, Found):
            yield from _records_of(part, step, after)
        else:
            yield step


def steps(
    directory: Path, after: int = 0, *, log_id: int = 0, bodies: bool = False
) -> Iterator[tuple[Part, Found | Damage | Unfinished]]:
    """Yield batches with records above `after` by their headers, and damage between them, with segments.

    bodies: verify the bodies, too. log_id, and the errors: as in `summaries`.
    """
    for part in segments(directory, log_id, after):
        wrong: list[Damage | Unfinished] = []
        for step in _steps(part, bodies=bodies):
            if not isinstance(step, Found):
                wrong.append(step)
                continue
            if step.header.base > after + 1:  # else what is wrong before it lies before `after`
                yield from ((part, one) for one in wrong)
            wrong.clear()
            if step.header.last > after:
                yield part, step
        yield from ((part, one) for one in wrong)


def _steps(part: Part, *, bodies: bool = False) -> Iterator[Found | Damage | Unfinished]:
    """Yield the batches of a segment, and the damage between them."""
    if part.misplaced:
        text = "a segment of another log, or a copy of another segment"
        yield Damage(part.path, 0, part.size, 0, -1, part.start.pointer, 0, text, kind=Wrong.MISPLACED)
        return
    here = part.start
    expected = part.expected
    if part.missing and part.before is not None:
        yield Damage(
            part.path, 0, 0, part.missing, part.before.ordinal, part.before.pointer, here.pointer + 1,
            "a segment before this one is missing", kind=Wrong.SEGMENT,
        )  # fmt: skip
    hole = Hole(0, 0) if part.block is None else None
    steps = walk(part.file, here, part.size, part.log_id, bodies=bodies, below=part.below)
    for step in (
        settled(steps, here.ordinal, lost_power=part.block is not None)
        if part.last and part.footer is None
        else steps
    ):
        if isinstance(step, Hole):
            hole = step
            continue
        if hole is not None or (expected is not None and step.header.ordinal > expected):
            following = LogPosition(step.offset, step.header.base - 1, step.header.ordinal)
            yield _damage(part, hole, expected, here, following, closed=hole is None)
        yield step
        here, hole, expected = step.end, None, step.end.ordinal
    yield from _tail(part, here, hole, expected)


def _tail(
    part: Part, here: LogPosition, hole: Hole | None, expected: int | None
) -> Iterator[Damage | Unfinished]:
    """Yield the damage behind the last batch of a segment."""
    footer = part.footer if part.footer and part.footer.end.offset >= here.offset else None
    if footer is not None and hole is not None:
        hole = hole._replace(end=footer.end.offset) if hole.start < footer.end.offset else None
    growing = part.last and part.block is not None and footer is None
    claimed = _claimed(part, expected or 0) if part.last and footer is None else None
    if growing and claimed is None and hole is not None and _is_cut(part, here, hole):
        yield Unfinished(part.path, hole.start, hole.end)
        return
    end = footer.end if footer else part.following or claimed
    if hole is not None or (end is not None and expected is not None and end.ordinal > expected):
        yield _damage(part, hole, expected, here, end, closed=hole is None and footer is not None)
    ordinal = footer.end.ordinal if footer else expected
    if part.following is not None and ordinal is not None and part.following.ordinal < ordinal:
        yield Damage(
            part.path, here.offset, here.offset, 0, part.following.ordinal, part.following.pointer,
            here.pointer + 1, "the next segment begins before the end of this one", kind=Wrong.OVERLAP,
        )  # fmt: skip


def _claimed(part: Part, ordinal: int) -> LogPosition | None:
    """Return where the last segment once ended, as its index proves, if it ends at a lower ordinal now."""
    point = part.segment.claim()
    if point is None or point.end.ordinal <= ordinal:
        return None
    if part.size < point.end.offset:
        try:
            if DISK.open(part.path).size() >= point.end.offset:
                return None  # it has grown since it was opened here, and was closed by its owner
        except FileNotFoundError:
            return None  # its owner has removed it meanwhile: nothing is claimed of it any more
    return point.end


def _damage(
    part: Part,
    hole: Hole | None,
    expected: int | None,
    here: LogPosition,
    following: LogPosition | None,
    *,
    closed: bool,
) -> Damage:
    """Describe the damage between two boundaries. expected: the ordinal at the first of them, if known."""
    missing = -1 if expected is None or following is None else max(-1, following.ordinal - expected)
    if hole is None:
        hole, kind = Hole(here.offset, here.offset), Wrong.RECORDS
    else:
        kind = _kind(part, hole, here, missing)
    return Damage(
        part.path, hole.start, hole.end, missing, -1 if expected is None else expected,
        here.pointer, following.pointer + 1 if following else 0, _TEXTS[kind], closed, kind,
    )  # fmt: skip


def _kind(part: Part, hole: Hole, here: LogPosition, missing: int) -> Wrong:
    """Return the kind of a hole, by how it begins."""
    if not hole.start:
        return Wrong.BLOCK
    if hole.end == part.size and not part.last and not missing:
        if hole.end - hole.start <= file_format.FOOTER_BYTES:
            return Wrong.FOOTER
        if _is_quarantined(part, hole):
            return Wrong.TORN
    try:
        header = batch.parse_header(part.file.read(batch.HEADER_BYTES, hole.start), part.log_id)
    except QuothError:
        return Wrong.BYTES
    if hole.start + header.size > hole.end:
        return Wrong.CUT
    if header.base > here.pointer and not _checks(part, Found(hole.start, header)):
        return Wrong.BODY
    return Wrong.DISPLACED if missing else Wrong.REPEATED


def _is_quarantined(part: Part, hole: Hole) -> bool:
    """Return True if an opening has copied these bytes, so that the next one cuts them off."""
    copy = part.path.with_name(file_format.torn_name(part.path.name, hole.start))
    try:
        return same_bytes(part.file, hole, file := DISK.open(copy), Hole(0, file.size()))
    except FileNotFoundError:
        return False


def _checks(part: Part, found: Found) -> bool:
    try:
        batch.check(part.file.read(found.header.size, found.offset), part.log_id)
    except QuothError:
        return False
    return True


def _is_cut(part: Part, here: LogPosition, hole: Hole) -> bool:
    """Return True if the file ends in an incomplete batch, transaction or footer, or in zeros.

    After a loss of power they may be anything: they were not synced.
    """
    if part.block is not None and part.block.boot_id != _boot_id():
        return True
    size = hole.end - hole.start
    head = part.file.read(min(size, batch.HEADER_BYTES), hole.start)
    if part.file.was_cut(hole.end):
        return True
    if not any(head):
        return is_zero(part.file, hole)
    if size < batch.HEADER_BYTES:
        return batch.MAGIC.startswith(head[:4]) or file_format.FOOTER_MAGIC.startswith(head[:8])
    try:
        header = batch.parse_header(head, part.log_id)
    except QuothError:
        return False
    return header.base > here.pointer and (header.size > size or is_open(header))


def _boot_id() -> bytes | None:
    """The boot that goes on; None where the system hides it, as /proc/sys may be: looking needs no more."""
    try:
        return SystemClock().boot_id()
    except BrokerFailure:
        return None


def _records_of(part: Part, found: Found, after: int) -> Iterator[Record | Damage | Unfinished]:
    raw = part.file.read(found.header.size, found.offset)
    try:
        columns = batch.decode(raw, part.log_id)
    except QuothError as problem:
        yield _broken(part, found, problem)
        return
    yield from records_of(columns, after)


def _broken(part: Part, found: Found, problem: QuothError) -> Damage | Unfinished:
    """A batch whose header checks and whose body does not."""
    (offset, header), end = found, found.end.offset
    if part.file.was_cut(end):
        return Unfinished(part.path, offset, end)
    return Damage(
        part.path, offset, end, header.records, header.ordinal, header.base - 1, header.last + 1,
        problem.text, kind=Wrong.BODY,
    )  # fmt: skip


def _believed(part: Part) -> Summary | None:
    """The summary of a segment that was sealed, as its header block and footer say; None without them."""
    block, footer = part.block, part.footer
    if block is None or footer is None or part.missing:
        return None
    if part.following is not None and part.following.ordinal != footer.end.ordinal:
        return None
    count = footer.end.ordinal - block.ordinal
    try:
        first = batch.parse_header(part.file.read(batch.HEADER_BYTES, block.size), part.log_id).base
    except QuothError:
        return None
    return Summary(
        part.path, part.log_id, part.floor, first, footer.end.pointer, block.ordinal, -1, count, part.size,
        True, part.is_indexed, 0, (),
    )  # fmt: skip


def verified(part: Part, advance: Advance) -> Iterator[Found | Damage | Unfinished]:
    """Yield the batches of a segment with intact bodies, and the damage between them."""
    seen = 0
    for step in _steps(part):
        end = step.end.offset if isinstance(step, Found) else step.end
        advance(end - seen)
        seen = end
        if isinstance(step, Found):
            try:
                batch.check(part.file.read(step.header.size, step.offset), part.log_id)
            except QuothError as problem:
                yield _broken(part, step, problem)
                continue
        yield step
    advance(part.size - seen)


def _walked(part: Part, steps: Iterator[Found | Damage | Unfinished]) -> Summary:
    """Summarize a segment from its batches."""
    first = last = batches = count = unfinished = 0
    ordinal = -1 if part.expected is None else part.expected
    damages: list[Damage] = []
    for step in steps:
        match step:
            case Found(_, header):
                ordinal = ordinal if first else header.ordinal
                first, last = first or header.base, header.last
                batches, count = batches + 1, count + header.records
            case Damage():
                damages.append(step)
            case Unfinished():
                unfinished = step.end - step.start
    sealed = part.footer is not None or not part.last
    return Summary(
        part.path, part.log_id, part.floor, first, last, ordinal, batches, count, part.size,
        sealed, part.is_indexed, unfinished, tuple(damages),
    )  # fmt: skip
