"""The active segment: the one that a log appends to."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from threading import Lock

from quothlog import file_format
from quothlog.file_format import Block, Checkpoint, Footer, LogPosition
from quothlog.index import SparseIndex
from quothlog.reading.segment_reader import SegmentView
from quothlog.segment import Segment
from quothlog.storage.filesystem import (
    TEMPORARY_SUFFIX,
    Buffer,
    File,
    FileSystem,
    durable_names,
    write_durably,
)
from quothwire import batch
from quothwire.batch import Header
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX


class ActiveSegment(Segment):
    """The segment that is being written. Owned by the log's owner, reads included; any thread may `sync`."""

    def __init__(self, filesystem: FileSystem, directory: Path, block: Block, file: File) -> None:
        super().__init__(filesystem, directory, block.floor, block.log_id, block.size)
        self._block = block
        self._set_head(block)
        self.file = file
        self.index = SparseIndex([block.start])
        self._extract_ends: dict[int, LogPosition] = {}
        self.end = block.start
        self.chain = block.chain
        self._last_offset, self._last_stamped = 0, b""
        self._checkpointed: LogPosition | None = None
        self._syncing = Lock()
        self._sync_problem: OSError | None = None

    @property
    def records(self) -> int:
        """Records that it holds."""
        return self.end.ordinal - self.block.ordinal

    @property
    def oldest(self) -> int:
        """The pointer of its first record; its floor if it holds none."""
        first = self.first()
        return first.base if first else self.floor

    def view(self) -> SegmentView:
        """See `Segment.view`."""
        return self.view_up_to(self.end)

    def view_up_to(self, end: LogPosition) -> SegmentView:
        """Return the view of a read that must not see past a boundary."""
        return SegmentView(self.file, self.index, self._extract_ends, end, POINTER_MAX + 1, end.offset)

    def append(self, batches: list[tuple[Header, bytes, Buffer]]) -> None:
        """Write (header, stamped header, body) of batches in one go, all of them or none.

        Raises OSError after cutting off what was written of them; `BrokerFailure` ``storage_failed`` if
        that could not be done either.
        """
        buffers: list[Buffer] = []
        for _, stamped, body in batches:
            buffers += (stamped, body)
        try:
            self.file.append(buffers)
        except BaseException:
            self._cut_back()
            raise
        for header, stamped, _ in batches:
            self.take(self.end.offset, header, stamped)

    def sync(self) -> None:
        """Return when what is in the file survives a loss of power, or raise OSError.

        After a failure it fails for good: the system reports it once, and the next fsync would succeed and
        mean nothing.
        """
        with self._syncing:
            if self._sync_problem is None:
                try:
                    self.file.sync()
                except OSError as problem:
                    self._sync_problem = problem
            if self._sync_problem is not None:
                raise self._sync_problem

    def take(self, offset: int, header: Header, stamped: bytes = b"") -> None:
        """Move the end behind a batch that is in the file. stamped: its encoded header, if it is at hand."""
        stamped = stamped or batch.stamp(header, self.log_id)
        _, _, body_bytes, records, base, ordinal, *_ = header
        if self.end.offset >= self.index.next_offset:
            self.index.note(self.end)
        self.chain = batch.extend_chain(self.chain, stamped)
        self._last_offset, self._last_stamped = offset, stamped
        self.size = offset + batch.HEADER_BYTES + body_bytes
        self.end = LogPosition(self.size, base + records - 1, ordinal + records)

    def resume(self, point: Checkpoint) -> None:
        """Go on from a checkpoint instead of from the header block."""
        self.index = SparseIndex(point.entries)
        self.end, self.chain = point.end, point.chain
        self._checkpointed = point.end
        self._last_offset, self._last_stamped = point.last_offset, point.last_check.to_bytes(8, "little")
        self.size = self.end.offset

    def write_checkpoint(self, producers: bytes, *, durably: bool = True) -> None:
        """Write the index file for what is in the file and synced, unless it is up to date.

        durably: wait for the disk. A part of an index does not check, so that can be left out.
        """
        if self._checkpointed == self.end:
            return
        point = Checkpoint(
            self.log_id, self.floor, self.end, self.chain,
            self._last_offset, int.from_bytes(self._last_stamped[-8:], "little"),
            self.index.positions(), producers,
        )  # fmt: skip
        data = file_format.encode_checkpoint(point)
        if durably:
            write_durably(self._filesystem, self.index_path, [data])
            self._checkpointed = self.end
            return
        with closing(self._filesystem.create(self.index_path)) as index:
            try:
                index.append([data])
            except OSError:
                self._filesystem.remove(self.index_path)
                raise

    @property
    def footer_bytes(self) -> bytes:
        """The footer for the batches in the file."""
        return file_format.encode_footer(Footer(self.log_id, self.end, self.chain))

    def seal(self, producers: bytes, following: int) -> Segment:
        """Write footer and index, which are derived, and return the sealed segment.

        following: the floor of the next segment. The batches are synced already, so an error here costs time
        at the next opening, and no data. The file stays open as long as a sync of it is under way.
        """
        try:
            self.file.append([self.footer_bytes])
        except OSError:
            with suppress(OSError):
                self.file.truncate(self.end.offset)  # half a footer would be taken for damage
        with suppress(OSError):
            self.write_checkpoint(producers, durably=False)
        return self.sealed(following, self.file.size())

    def sealed(self, following: int, size: int) -> Segment:
        """Return the segment for readers, now that it does not change any more. size: of its file."""
        sealed = self._twin(size, self.end.offset)
        sealed.below = following
        return sealed

    def as_of(self, end: LogPosition) -> Segment:
        """Return the segment up to a boundary, which any thread can read, whatever becomes of this one."""
        seen = self._twin(end.offset, end.offset)
        seen.kept_view = SegmentView(self.open(), self.index, {}, end, POINTER_MAX + 1, end.offset)
        return seen

    def _twin(self, size: int, stop: int) -> Segment:
        twin = Segment(self._filesystem, self.path.parent, self.floor, self.log_id, size)
        twin._set_head(self.block)
        twin.stop = stop
        return twin

    def _peek(self) -> File:
        return self.file

    def _cut_back(self) -> None:
        try:
            self.file.truncate(self.end.offset)
        except OSError as problem:
            raise error("storage_failed", f"{self.path}: {problem.strerror}") from problem


def begin_segment(filesystem: FileSystem, directory: Path, block: Block) -> ActiveSegment:
    """Begin a segment: complete and durable, name included, before its first record.

    After `NotDurable` its name is there for now. If the log went on without it, even on a full disk, it would
    hide after the next start what was appended below it.
    """
    path = directory / file_format.segment_name(block.floor)
    beside = path.with_name(path.name + TEMPORARY_SUFFIX)
    with durable_names(filesystem, directory):
        file = filesystem.create(beside)
        try:
            file.append([file_format.encode_block(block)])
            file.sync()
            filesystem.rename(beside, path)
        except BaseException:
            file.close()
            filesystem.remove(beside)
            raise
    return ActiveSegment(filesystem, directory, block, file)
