"""Rebuilding what is derived of sealed segments: footers and indexes that a crash kept from the disk.

A roll writes both without waiting for the disk, so a loss of power may take either or leave a part of it, and
no record is missing. What an opening makes is durable before the log goes on, because the next opening does
not look there again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import pairwise

from quothlog.active_segment import ActiveSegment
from quothlog.file_format import FOOTER_BYTES
from quothlog.producers import ProducerTable
from quothlog.recovery.scan import Found, walk
from quothlog.segment import Segment
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import FileSystem, sync_file
from quothwire.batch import Flag
from quothwire.errors import QuothError


def rebuild(filesystem: FileSystem, segments: Sequence[Segment], clock: Clock) -> Iterator[str]:
    """Write the footers and indexes that a crash may have cost a log, durably; yields the segments' names.

    segments: all of the log, oldest first. A segment stays as it is where records are damaged or missing, or
    where it cannot be read or written now: readers do without.
    """
    for one, following in _sealed_lately(segments, clock.boot_id()):
        with suppress(OSError, QuothError):
            if _rebuild_one(filesystem, one, following, clock):
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
    with closing(filesystem.open(one.path)) as file:
        is_closed = one.footer(file) is not None or _boot_of(one) != _boot_of(following)
        return is_closed and one.agreed_checkpoint(file) is not None


def _rebuild_one(filesystem: FileSystem, one: Segment, following: Segment, clock: Clock) -> bool:
    """Write footer and index of a segment, unless both are there or something else is wrong. Raises OSError.

    Its batches have to end where the next segment begins, and nothing but a footer may lie behind them.
    """
    if _is_complete(filesystem, one, following):
        return False
    begin = following.block
    with closing(filesystem.open(one.path, overwrite=True)) as file:
        replayed = ActiveSegment(filesystem, one.path.parent, one.block, file)
        producers = ProducerTable.decode(replayed.block.producers)
        for step in walk(file, one.start, one.size, one.log_id, below=one.below):
            if isinstance(step, Found):
                replayed.take(step.offset, step.header)
                producers.learn(step.header)
            elif not step.end == one.size <= step.start + FOOTER_BYTES:
                return False
        end = replayed.end
        if (end.pointer, end.ordinal, replayed.chain) != (begin.previous, begin.ordinal, begin.chain):
            return False
        file.overwrite(replayed.footer_bytes, end.offset)
        sync_file(file)
        one.size = end.offset + FOOTER_BYTES
        table = begin.producers
        if has_no_table(following):
            table = b"" if has_no_table(one) else producers.encode(clock.now())
        replayed.write_checkpoint(table)
        return True
