"""Repairs a log: rewrites damaged segments without the bytes that readers step over, and keeps every byte.

It works under the log's lock, segment by segment, oldest first, after an opening. It keeps a segment in which
something does not check under another name (`.N.damaged`), and puts one in its place with a header block, the
intact batches and, once sealed, a footer. Pointers and ordinals stay, so readers still learn which records
are gone. A crash at any point leaves the log as it was, or repaired up to there.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

from quothlog import file_format
from quothlog.active_segment import ActiveSegment
from quothlog.file_format import Block, Footer, LogPosition
from quothlog.producers import ProducerTable
from quothlog.recovery.recovery import open_directory
from quothlog.recovery.scan import Found, Hole, parts, same_bytes, walk
from quothlog.recovery.snapshot import logs_in
from quothlog.segment import Segment
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.filesystem import (
    File,
    FileSystem,
    PosixFileSystem,
    durable_names,
    sync_file,
    write_durably,
)
from quothwire.errors import error

_NO_BOOT = bytes(16)


class Mended(NamedTuple):
    """The repair of one segment.

    kept: the file with the bytes as they were, None if only the index was rebuilt. bytes: how many of
    them are no part of the log any more. problem: why it could not be read or written, and was left as it is.
    """

    path: Path
    kept: Path | None
    bytes: int
    problem: str = ""


def repair(
    directory: Path,
    *,
    log_id: int = 0,
    others: Collection[str] = (),
    filesystem: FileSystem | None = None,
    clock: Clock | None = None,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Mended]:
    """Repair the log in a directory; yields each repair as it is done.

    log_id, others: as in `Log.open`. advance: called with the number of bytes that were looked at since the
    last call. Raises FileNotFoundError if there is no log, `Conflict` ``locked``, `Damaged`, or OSError if
    it cannot even be opened.
    """
    filesystem, clock = filesystem or PosixFileSystem(), clock or SystemClock()
    if not any(map(file_format.floor_of, filesystem.list(directory))):
        raise FileNotFoundError(errno.ENOENT, "no segment of a log", str(directory))
    if not log_id and len(logs_in(directory)) > 1:
        raise error(
            "damaged", "there are segments of several logs", "take away those that do not belong here"
        )
    lock = DirectoryLock(directory)
    try:
        opened = open_directory(filesystem, directory, clock, log_id, others)
        active = opened.go_on(clock)
        active.file.close()
        for name in opened.findings.quarantined:
            source, _ = file_format.torn_from(name)
            size = filesystem.list(directory)[name]
            yield Mended(directory / source, directory / name, size)
        for name in opened.findings.false_segments:
            former = name.removesuffix(file_format.DAMAGED_SUFFIX).rpartition(".")[0]
            yield Mended(directory / former, directory / name, filesystem.list(directory)[name])
        for name in opened.findings.rebuilt:
            yield Mended(directory / name, None, 0)
        for one in opened.sealed[1:]:  # the first one is read, whatever name its header block says
            if one.is_misplaced:
                yield _quarantine(filesystem, one)
        row = [*(one for one in opened.sealed if not one.is_misplaced), active]
        for earlier, later in pairwise(row):
            earlier.following = later
        before: _End | None = None
        for one, following in zip(row, [*row[1:], None], strict=True):
            try:
                mender = _Mender(filesystem, clock, one, before, following)
                yield from mender.mend(advance or (lambda _bytes: None))
                before = mender.end
            except OSError as problem:
                yield _failed(one, problem)
                before = None
    finally:
        lock.release()


def _failed(one: Segment, problem: OSError) -> Mended:
    return Mended(one.path, None, 0, problem.strerror or str(problem))


def _quarantine(filesystem: FileSystem, one: Segment) -> Mended:
    """Quarantine a segment of another log, or a copy of one."""
    try:
        file = filesystem.open(one.path)
        size = file.size()
        kept = _keep(filesystem, one.path, file)
        file.close()
        with durable_names(filesystem, one.path.parent):
            one.remove()
    except OSError as problem:
        return _failed(one, problem)
    return Mended(one.path, kept, size)


def _keep(filesystem: FileSystem, path: Path, file: File) -> Path:
    """Copy a segment to a quarantined file, durably; returns the path of the copy."""
    whole = Hole(0, file.size())
    for number in count(1):
        copy = path.with_name(file_format.damaged_name(path.name, number))
        size = filesystem.list(path.parent).get(copy.name)
        if size is None:
            write_durably(filesystem, copy, parts(file, whole))
            return copy
        kept = filesystem.open(copy)
        if same_bytes(kept, Hole(0, size), file, whole):  # a repair was broken off behind this
            return copy
    raise AssertionError("unreachable")


class _End(NamedTuple):
    """The state of the log behind a segment."""

    position: LogPosition
    chain: int
    producers: ProducerTable


class _Mender:
    """One segment on its way through the repair. following: None for the last one, which goes on growing."""

    def __init__(
        self,
        filesystem: FileSystem,
        clock: Clock,
        one: Segment,
        before: _End | None,
        following: Segment | None,
    ) -> None:
        self._filesystem = filesystem
        self._clock = clock
        self._segment = one
        self._before = before
        self._following = following
        self._file: File = filesystem.open(one.path)
        self._size = self._file.size()
        self._block = one.block if one.has_block else self._new_block()
        self._footer = one.footer(self._file)
        self._intact: list[Hole] = []
        block = self._block
        self._mended = ActiveSegment(filesystem, one.path.parent, block, self._file)
        """The batches that were seen so far, as they will lie in the mended segment."""
        self._producers = ProducerTable.decode(block.producers)
        if before is not None and not block.producers:  # a transaction's segment has no table
            self._producers = before.producers

    @property
    def end(self) -> _End:
        """The state behind the segment, from its footer if it has one: not all of it may be readable."""
        source = self._footer or self._mended
        return _End(source.end, source.chain, self._producers)

    def mend(self, advance: Callable[[int], None]) -> Iterator[Mended]:
        """Verify the segment, and write it anew if a part of it is damaged."""
        try:
            damaged = self._look_through(advance)
            if self._is_false():
                yield _quarantine(self._filesystem, self._segment)
            elif damaged or not self._segment.has_block:
                kept = _keep(self._filesystem, self._segment.path, self._file)
                self._rewrite()
                yield Mended(self._segment.path, kept, damaged)
            elif self._following is not None:
                if self._ends_short():
                    self._append_footer(self._following)
                elif self._segment.agreed_checkpoint(self._file) is not None:
                    return
                self._mended.write_checkpoint(self._producers.encode(self._clock.now()))
                yield Mended(self._segment.path, None, 0)
        finally:
            self._file.close()

    def _look_through(self, advance: Callable[[int], None]) -> int:
        """Find the ranges of intact batches; returns the number of all other bytes."""
        damaged = seen = 0
        one = self._segment
        for step in walk(self._file, one.start, self._size, one.log_id, bodies=True, below=one.below):
            if isinstance(step, Found):
                self._take(step)
                advance(step.end.offset - seen)
                seen = step.end.offset
            elif not self._is_footer(step):
                damaged += step.end - step.start
        advance(self._size - seen)
        return damaged

    def _take(self, found: Found) -> None:
        """Add an intact batch, which will lie behind those before it."""
        offset, header = found
        if self._intact and self._intact[-1].end == offset:
            self._intact[-1] = Hole(self._intact[-1].start, found.end.offset)
        else:
            self._intact.append(Hole(offset, found.end.offset))
        self._mended.take(self._mended.end.offset, header)
        self._producers.learn(header)

    def _is_false(self) -> bool:
        """Return True if nothing in it can be read, and its name lies within the segment before it."""
        within = self._before is not None and self._before.position.pointer >= self._segment.floor
        return within and not self._intact and not self._segment.has_block

    def _is_footer(self, hole: Hole) -> bool:
        return self._footer is not None and hole == (self._footer.end.offset, self._size)

    def _ends_short(self) -> bool:
        """Return True if records are missing behind its last batch, as only the next segment shows."""
        following = self._following
        if self._footer is not None or following is None or not following.has_block:
            return False
        return following.block.ordinal > self._mended.end.ordinal

    def _append_footer(self, following: Segment) -> None:
        """Append a footer with the former end of the segment."""
        with closing(self._filesystem.open(self._segment.path, append=True)) as file:
            file.append([file_format.encode_footer(self._new_footer(following))])
            sync_file(file)

    def _new_block(self) -> Block:
        """A header block in place of a damaged one, from the end of the segment before it."""
        one, before = self._segment, self._before
        if before is None:
            ordinal, following = one.start.ordinal, self._following
            if one.first() is None and following is not None and following.has_block:
                ordinal = following.block.ordinal  # what was removed and what was lost cannot be known
            return Block(one.log_id, one.floor, one.start.pointer, ordinal, 0, _NO_BOOT, b"")
        position, chain, producers = before
        snapshot = producers.encode(self._clock.now())
        return Block(one.log_id, one.floor, position.pointer, position.ordinal, chain, _NO_BOOT, snapshot)

    def _rewrite(self) -> None:
        self._filesystem.remove(self._segment.index_path)
        write_durably(self._filesystem, self._segment.path, self._contents())
        if self._following is not None:
            self._mended.write_checkpoint(self._producers.encode(self._clock.now()))

    def _contents(self) -> Iterator[bytes]:
        yield file_format.encode_block(self._block)
        for intact in self._intact:
            yield from parts(self._file, intact)
        if self._following is not None:
            yield file_format.encode_footer(self._new_footer(self._following))

    def _new_footer(self, following: Segment) -> Footer:
        """Make a footer with the state in the old one, although not all batches can be read."""
        end, chain = self._mended.end, self._mended.chain
        if self._footer is not None:
            end, chain = self._footer.end._replace(offset=end.offset), self._footer.chain
        elif following.has_block:
            block = following.block
            end, chain = LogPosition(end.offset, block.previous, block.ordinal), block.chain
        return Footer(self._segment.log_id, end, chain)
