"""Rebuilding what is derived of sealed segments: footers and indexes that a crash kept from the disk.

A roll writes both without waiting for the disk, so a loss of power may take either or leave a part of it, and
no record is missing. After another boot an opening looks at the segments that were sealed in the boot before
it, the last one of an earlier boot among them, else only at the one before the last, in whose roll the
process may have died. What it makes is durable before the log goes on, because the next opening does not look
there again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from quothlog.active_segment import ActiveSegment
from quothlog.file_format import FOOTER_BYTES, Block
from quothlog.producers import ProducerTable
from quothlog.recovery.scan import Hole, walk
from quothlog.segment import Segment
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import FileSystem, sync_file
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import QuothError


def rebuild(filesystem: FileSystem, segments: Sequence[Segment], clock: Clock) -> Iterator[str]:
    """Write the footers and indexes that a crash may have cost a log, durably; yields the segments' names.

    segments: all of the log, oldest first. A segment stays as it is where records are damaged or missing, or
    where it cannot be read or written now: readers do without.
    """
    for one, following in _sealed_lately(segments, clock.boot_id()):
        with suppress(OSError, QuothError):
            if not _is_complete(filesystem, one, following) and _Rebuilding(filesystem, one, following).run(
                clock
            ):
                yield one.path.name


def has_no_table(one: Segment) -> bool:
    """Return True if a segment begins without a producer table, as those of a large transaction do."""
    if not one.has_block or one.block.producers:
        return False
    first = one.first()
    return first is not None and bool(first.flags & Flag.TRANSACTION)


def _sealed_lately(segments: Sequence[Segment], boot_id: bytes) -> Iterator[tuple[Segment, Segment]]:
    """The segments that were sealed in the boot in which the last one was begun, and what follows each.

    Only the newest of them if that boot still goes on: what older ones lack, the page cache would have.
    Segments without a header block are passed over: they, and what they follow, cannot be made anew.
    """
    boots = ((one, boot) for one in reversed(segments) if (boot := _boot_of(one)) is not None)
    last: bytes | None = None
    for (following, boot), (one, _) in pairwise(boots):
        last = last or boot
        if boot != last:
            return
        yield one, following
        if boot == boot_id:
            return


def _boot_of(one: Segment) -> bytes | None:
    """The boot in which a segment was begun; None if its header block does not check, or cannot be read."""
    try:
        return one.block.boot_id
    except (OSError, QuothError):
        return None


def _is_complete(filesystem: FileSystem, one: Segment, following: Segment) -> bool:
    """Return True if a segment has a footer, and an index that agrees with it.

    A segment that a loss of power ended got no footer from the log that went on behind it.
    """
    file = filesystem.open(one.path)
    try:
        is_closed = one.footer(file) is not None or _boot_of(one) != _boot_of(following)
        return is_closed and one.agreed_checkpoint(file) is not None
    finally:
        file.close()


class _Rebuilding:
    """One sealed segment on its way to footer and index. following: the segment behind it."""

    def __init__(self, filesystem: FileSystem, one: Segment, following: Segment) -> None:
        self._one = one
        self._following = following
        self._file = filesystem.open(one.path, overwrite=True)
        block = self._block = one.block
        self._segment = ActiveSegment(filesystem, one.path, block, self._file, block.start, block.chain)
        self._producers = ProducerTable.decode(block.producers)

    def run(self, clock: Clock) -> bool:
        """Write both, unless something else is wrong with the segment. Raises OSError."""
        try:
            if not self._is_whole():
                return False
            end = self._segment.end.offset
            self._file.overwrite(self._segment.footer_bytes, end)
            sync_file(self._file)
            self._one.size = end + FOOTER_BYTES
            self._segment.write_checkpoint(self._table(clock))
            return True
        finally:
            self._file.close()

    def _is_whole(self) -> bool:
        """Read all batches; returns True if they end where the next segment begins, but for a footer."""
        one, begin = self._one, self._following.block
        for step in walk(self._file, one.start, one.size, one.log_id, below=one.below):
            if isinstance(step, Hole):
                return step.end == one.size <= step.start + FOOTER_BYTES and self._leads_to(begin)
            self._segment.take(step.offset, step.header, batch.stamp(step.header, one.log_id))
            self._producers.store(step.header)
            self._producers.commit()
        return self._leads_to(begin)

    def _leads_to(self, begin: Block) -> bool:
        (_, pointer, ordinal), chain = self._segment.end, self._segment.chain
        return (pointer, ordinal, chain) == (begin.previous, begin.ordinal, begin.chain)

    def _table(self, clock: Clock) -> bytes:
        """The producer table behind its last batch."""
        if not has_no_table(self._following):
            return self._following.block.producers
        return b"" if has_no_table(self._one) else self._producers.encode(clock.now())
