"""One segment: a file of batches, read from any pointer.

A sealed segment never changes, so any thread may read it. The open file, the index and the end, which a read
needs, are loaded at the first read and may be dropped at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quothlog import file_format
from quothlog.file_format import Block, Checkpoint, Footer, LogPosition
from quothlog.index import SparseIndex
from quothlog.reading.segment_reader import SegmentView
from quothlog.recovery.scan import batches
from quothlog.storage.filesystem import PROCESS_SHORT, File, FileSystem
from quothwire import batch
from quothwire.batch import Header
from quothwire.errors import Damaged, QuothError, error
from quothwire.pointer import POINTER_MAX

T = TypeVar("T")


class _Cached(Generic[T]):
    """A property that is computed once, and may be set.

    `functools.cached_property` of Python 3.11 computes it under one lock for all instances, so that a thread
    would wait for the disk of another one.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type) -> T:
        found: T = self._compute(instance)
        instance.__dict__[self._name] = found
        return found

    if TYPE_CHECKING:  # the value in the instance goes before this descriptor

        def __set__(self, instance: Any, value: T) -> None: ...


class Segment:
    """A segment by its file. Without a valid header block its batches can still be read."""

    def __init__(self, filesystem: FileSystem, directory: Path, floor: int, log_id: int, size: int) -> None:
        self._filesystem = filesystem
        self.path = directory / file_format.segment_name(floor)
        self.floor = floor
        self.log_id = log_id
        self.size = size
        self.following: Segment | None = None
        """The next segment in the directory, as far as names tell."""
        self.removed = False
        self._kept = False
        self._block: Block | None = None
        self.kept_view: SegmentView | None = None
        """Its open file and its index in memory. Another thread may drop it at any moment."""

    def open(self) -> File:
        """Open its file for reading. Raises OSError."""
        return self._filesystem.open(self.path)

    @property
    def index_path(self) -> Path:
        """The index file beside it."""
        return self.path.with_suffix(file_format.INDEX_SUFFIX)

    @property
    def block(self) -> Block:
        """The header block. Raises `Damaged`, or ``unsupported_version``."""
        block = self._block
        if block is None:
            block = read_block(self.open())
            if self.log_id and block.log_id != self.log_id:
                raise error("damaged", f"{self.path.name} is a segment of another log")
            if block.floor != self.floor:
                raise error("damaged", f"{self.path.name} is a copy of the segment at {block.floor}")
        return block  # which is not kept: a producer table takes 4.5 MiB

    @_Cached
    def has_block(self) -> bool:
        """True if its header block checks and is that of this segment."""
        try:
            return self.block is not None
        except Damaged:
            return False

    @_Cached
    def is_misplaced(self) -> bool:
        """True if its header block checks and is that of another segment, or of another log."""
        if self.named is None or self.is_named:
            return False
        try:
            return read_block(self.open()) is not None
        except (QuothError, FileNotFoundError):
            return False

    @_Cached
    def below(self) -> int:
        """Exclusive upper bound of its pointers: where the next segment of this log begins for certain."""
        following = self.following
        while following is not None and not following.is_named:
            following = following.following
        return following.floor if following is not None else POINTER_MAX + 1

    @_Cached
    def named(self) -> tuple[int, int, LogPosition] | None:
        """The log and the floor that its header block names, and where the batches begin.

        None if that cannot be read. The producer table, up to 4.5 MiB, is not read: a scan needs this of
        every segment.
        """
        try:
            return file_format.named_in(self.open().read(file_format.BLOCK_BYTES, 0))
        except QuothError:
            return None
        except OSError as problem:
            if problem.errno in PROCESS_SHORT:
                raise
            return None

    def _set_head(self, block: Block) -> None:
        """Set the values of a header block that was read already."""
        self.has_block, self.named, self.start = True, (block.log_id, block.floor, block.start), block.start

    @property
    def is_named(self) -> bool:
        """True if its header block names this very segment."""
        return self.named is not None and self.named[:2] == (self.log_id, self.floor)

    @_Cached
    def start(self) -> LogPosition:
        """The boundary before its first batch; without a valid header block, by the header of that batch."""
        if self.has_block:  # what `named` has, where the file could be read then
            return self.named[2] if self.named is not None else self.block.start
        begin = LogPosition(0, self.floor - 1, 0)
        first = self._first_behind(begin)
        return begin._replace(ordinal=first.ordinal) if first else begin

    @_Cached
    def begin(self) -> LogPosition | None:
        """The boundary before its records: by its header block, whether its producer table is whole or not,
        else by the first batch that can be read. None if there is neither."""
        if self.named is not None and self.is_named:
            return self.named[2]
        first = self.first()
        return LogPosition(0, first.base - 1, first.ordinal) if first else None

    @_Cached
    def stop(self) -> int:
        """The offset behind its last batch: where its footer lies, or its end if it has none."""
        footer = self.footer(self.open())
        return footer.end.offset if footer else self.size

    def first(self) -> Header | None:
        """Find the header of its first batch, without loading anything."""
        return self._first_behind(self.start)

    def view(self) -> SegmentView:
        """Open the file and load the index, unless that has been done and kept."""
        view = self.kept_view
        if view is None:
            view = self._load()
            if self._kept:
                self.kept_view = view
            if not self._kept:  # it was dropped just now, and nothing would drop it again
                self.kept_view = None
        return view

    def keep(self) -> None:
        """Keep the file open and the index in memory after the next read."""
        self._kept = True

    def rest(self) -> None:
        """Close the file and drop the index; a read that is under way keeps them until it is done."""
        self._kept = False
        self.kept_view = None

    def remove(self) -> None:
        """Remove its files, the one that counts last. Reads that are under way go on."""
        self.removed = True  # first, so that a reader in another thread knows why the file is missing
        self._filesystem.remove(self.index_path)
        self._filesystem.remove(self.path)

    def checkpoint(self) -> Checkpoint | None:
        """Read the checkpoint in its index file; None unless it checks and belongs to this very file."""
        point = self.claim()
        return point if point is not None and point.end.offset <= self.size else None

    def agreed_checkpoint(self, file: File) -> Checkpoint | None:
        """Read its checkpoint; None too if the last batch in its file is not where the checkpoint says."""
        point = self.checkpoint()
        return point if point is not None and last_batch_agrees(file, point) else None

    def claim(self) -> Checkpoint | None:
        """Read its checkpoint even if the file ends before: its index says what was synced."""
        try:
            file = self._filesystem.open(self.index_path)
            size = file.size()
            if size > file_format.index_bytes_max(self.size):
                return None
            point = file_format.decode_checkpoint(file.read(size, 0))
        except (OSError, QuothError):
            return None
        return point if point.floor == self.floor and self.log_id in (0, point.log_id) else None

    def footer(self, file: File) -> Footer | None:
        """Read the footer of the file; None unless there is one and it belongs here.

        A value at the end of the file can look like one: it counts only if no whole batch reaches into it.
        """
        offset = self.size - file_format.FOOTER_BYTES
        if offset < file_format.BLOCK_BYTES:
            return None
        try:
            footer = file_format.decode_footer(file.read(file_format.FOOTER_BYTES, offset))
        except QuothError:
            return None
        return footer if footer.log_id == self.log_id and footer.end.offset == offset else None

    def _first_behind(self, begin: LogPosition) -> Header | None:
        found = next(batches(self._peek(), begin, self.size, self.log_id, below=self.below), None)
        return found.header if found is not None else None

    def _peek(self) -> File:
        view = self.kept_view
        return view.file if view else self.open()

    def _load(self) -> SegmentView:
        file = self.open()
        point = self.agreed_checkpoint(file)
        if point is not None:
            index, here = SparseIndex(point.entries), point.end
        else:
            index, here = SparseIndex([self.start]), self.start
        below = self.below
        for found in batches(file, here, self.size, self.log_id, below=below):
            here = found.end
            index.note(here)
        return SegmentView(file, index, {}, here, below, self.size)


def linked(filesystem: FileSystem, directory: Path, log_id: int, sizes: Mapping[int, int]) -> list[Segment]:
    """The segments of a directory, oldest first, each with the next one. sizes: of their files, by floors."""
    row = [Segment(filesystem, directory, floor, log_id, sizes[floor]) for floor in sorted(sizes)]
    for one, following in pairwise(row):
        one.following = following
    return row


def read_block(file: File) -> Block:
    """Read a segment's header block. Raises `Damaged`."""
    head = file.read(file_format.BLOCK_BYTES, 0)
    size = min(file_format.block_size(head), file.size())  # a corrupt length is to allocate nothing
    return file_format.decode_block(file.read(size, 0))


def last_batch_agrees(file: File, point: Checkpoint) -> bool:
    """Return True if the last batch of a checkpoint lies in the file where the checkpoint says."""
    if not point.last_offset:
        return point.entries == [point.end]
    stamped = file.read(batch.HEADER_BYTES, point.last_offset)
    try:
        header = batch.parse_header(stamped, point.log_id)
    except QuothError:
        return False
    ends = (point.last_offset + header.size, header.last, header.end_ordinal)
    return ends == point.end and int.from_bytes(stamped[-8:], "little") == point.last_check
