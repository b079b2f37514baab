"""Finds false segments: files with the name of one that cannot be one of this log; FORMAT.md has the rules.

The last segment says above which pointer a log goes on, its name included. So a file that a person has put
there would move the log's clock for good. A disk that rots can leave a segment without a block, too; so a
file that an index claims is a segment. An opening quarantines false segments; a reader without a lock
skips them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from quothlog import file_format, segment
from quothlog.recovery.scan import newest_pointer_in
from quothlog.segment import Segment
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import FileSystem
from quothwire.errors import Damaged, QuothError

AHEAD_MAX_US = 86_400_000_000
"""A day: further ahead of the clock and of the newest pointer no log begins a segment, even where the clock
was set to another time zone."""


def false_segments_among(
    filesystem: FileSystem, directory: Path, log_id: int, sizes: Mapping[int, int], clock: Clock
) -> list[int]:
    """The floors, lowest first, of the false segments.

    sizes: of all files that are called like segments, by their floors. clock: asked only where its time
    decides. A file that cannot be read now is none.
    """
    row = [Segment(filesystem, directory, floor, log_id, sizes[floor]) for floor in sorted(sizes)]
    behind: list[int] = []
    while row and _is_behind(row[-1], row[:-1], clock):
        behind.insert(0, row.pop().floor)
    between = (
        one.floor
        for place, one in enumerate(row[:-1])
        if not one.size and _is_between(one, row[:place], row[place + 1])
    )
    return [*between, *behind]


def _is_behind(one: Segment, earlier: Sequence[Segment], clock: Clock) -> bool:
    """Return True if the file with the highest name is a false segment for certain."""
    with suppress(OSError, QuothError), closing(one.open()) as file:
        head = file.read(file_format.BLOCK_BYTES, 0)
        if _is_block_of(head, one) or one.claim() is not None:
            return False
        known = _last_known(earlier)
        if one.size and known is None:
            return False
        try:
            return bool(segment.read_block(file))
        except Damaged:
            return not _is_of_log(one) and not _is_plausible(one, known, clock)
    return False


def _is_between(one: Segment, earlier: Sequence[Segment], following: Segment) -> bool:
    """Return True if an empty file with others behind it is a false segment for certain.

    The header block behind it says how far the log went before. Where that is just below this name, the log
    went on above it because it may have been a segment.
    """
    with suppress(OSError, QuothError):
        begin = following.block
        if one.claim() is not None or begin.previous == one.floor - 1:
            return False
        known = _last_known(earlier)
        if begin.previous < one.floor:
            return True
        return known is not None and _end_of(known) == (begin.previous, begin.ordinal)
    return False


def _is_plausible(one: Segment, known: Segment | None, clock: Clock) -> bool:
    """Return True if this can be the name of the segment behind the last known one."""
    pointer, _ = _end_of(known) if known is not None else (0, 0)
    return pointer < one.floor <= max(clock.now(), pointer) + AHEAD_MAX_US


def _last_known(row: Sequence[Segment]) -> Segment | None:
    """The last file with anything of the log, None if there is none."""
    return next((one for one in reversed(row) if _is_of_log(one)), None)


def _is_of_log(one: Segment) -> bool:
    """Return True if a file has anything of this segment, or of its log."""
    with closing(one.open()) as file:
        head = file.read(file_format.BLOCK_BYTES, 0)
        if _is_block_of(head, one):
            return True
        if one.is_misplaced:
            return False
        is_like_block = file_format.is_like_block(head, one.log_id, one.floor)
        return is_like_block or newest_pointer_in(file, 0, file.size(), one.log_id) > 0


def _is_block_of(head: bytes, one: Segment) -> bool:
    """Return True if a header block names this very segment."""
    try:
        return file_format.named_in(head)[:2] == (one.log_id, one.floor)
    except Damaged:
        return False


def _end_of(one: Segment) -> tuple[int, int]:
    """The pointer and the ordinal behind its last batch."""
    end = one.view().end
    return end.pointer, end.ordinal
