"""A log out of an archive, in a new directory: its id, its pointers and what it knew of producers stay.

Pointers that the log allocated after the moment of the archive are not in it, and a reader may have seen
them. So the restored log goes on in a new segment, 10 s above the clock and above every known pointer, as
after a loss of power.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from pathlib import Path

from quothlog import file_format
from quothlog.backup.backup import Archive
from quothlog.file_format import LogPosition
from quothlog.recovery.recovery import open_directory
from quothlog.recovery.recovery_segment import cut
from quothlog.recovery.scan import Hole, batches, parts
from quothlog.recovery.snapshot import DISK, Part, segments
from quothlog.recovery.verify import Advance
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.filesystem import write_durably
from quothwire.errors import error


def restore(
    source: Path,
    archive: Archive,
    directory: Path,
    log_id: int,
    *,
    until: int | None = None,
    others: Collection[str] = (),
    clock: Clock | None = None,
    advance: Advance | None = None,
) -> LogPosition | None:
    """Write the log of an archive into a directory that is not in use yet.

    until: an earlier moment than that of the archive, None for that one. others: as in `Log.open`. advance:
    called with the bytes of each file. Returns where its batches end, None if it has no segments. Raises
    OSError; the directory is to be removed then.
    """
    for kept in archive.files:
        file = DISK.open(source / kept.name)
        path = (directory / file_format.segment_name(kept.floor)).with_suffix(kept.suffix)
        write_durably(DISK, path, parts(file, Hole(0, kept.bytes)))
        file.close()
        if advance is not None:
            advance(kept.bytes)
    if not archive.segments:
        return None
    if until is not None and until < archive.until:
        _cut(directory, log_id, until)
    clock = clock or SystemClock()
    return _go_on_above(directory, clock, log_id, others, max(archive.newest, clock.now()))


def _cut(directory: Path, log_id: int, until: int) -> None:
    """Take away every batch that begins above a pointer; the first segment stays, if need be empty."""
    is_first = True
    for part in segments(directory, log_id):
        end = _end_of(part, until)
        if part.floor > until and not is_first:
            DISK.remove(part.path)
        elif end is not None:
            file = DISK.open(part.path, append=True)
            cut(file, end.offset)
            file.close()
        if end is not None or part.floor > until:
            DISK.remove(part.path.with_suffix(file_format.INDEX_SUFFIX))
        is_first = False


def _end_of(part: Part, until: int) -> LogPosition | None:
    """Return where the first batch above a pointer begins, None if there is none."""
    if part.footer is not None and part.footer.end.pointer <= until:
        return None
    end = part.start
    for found in batches(part.file, end, part.size, part.log_id, below=part.below):
        if found.header.base > until:
            return end
        end = found.end
    return None


def _go_on_above(
    directory: Path, clock: Clock, log_id: int, others: Collection[str], pointer: int
) -> LogPosition | None:
    opened = open_directory(DISK, directory, _AnotherBoot(clock), log_id, others)
    successor = opened.successor
    if successor is None:
        raise error("damaged", "none of its files is a segment", "restore another backup")
    successor.highest = max(successor.highest, pointer)
    if opened.active is not None and opened.active.records:
        opened.active.write_checkpoint(opened.producers.encode(clock.now()))
    opened.go_on(clock).file.close()
    return successor.end


class _AnotherBoot:
    """A clock by which the page cache is gone with everything that was not synced."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep

    def boot_id(self) -> bytes:
        """See `Clock.boot_id`."""
        return secrets.token_bytes(16)
