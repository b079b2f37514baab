"""Publishing a large transaction: its files of staged batches become segments of the log, all or none.

    prepare    any thread    sync the files; copy runs of small ones, and the last one
    place      the owner     allocate pointers and ordinals; from here on nothing else is appended
    commit     any thread    write all headers with them, in place, and sync; write down which file becomes
                             which segment; make the segment durable with which the log goes on: that decides;
                             give the files their names; remove the plan
    adopt      the owner     go on in the new segment

A crash before the decision leaves files of staged batches, whatever their headers say; after it, the next
opening gives them their names, see `commit_plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from quothlog import file_format
from quothlog.active_segment import ActiveSegment, begin_segment
from quothlog.file_format import BLOCK_BYTES, Block, LogPosition
from quothlog.recovery.scan import Hole, parts
from quothlog.retention import LogOptions
from quothlog.segment import Segment
from quothlog.storage.filesystem import File, FileSystem, NotDurable, durable_names, sync_file
from quothlog.storage.write_failure import need_room
from quothlog.transactions.commit_plan import CommitPlan
from quothlog.transactions.staging import (
    CANNOT_BE_READ,
    StagedFile,
    TransactionKey,
    headers_in,
    is_intact,
    raw_at,
    readable,
    reopened,
)
from quothwire import batch
from quothwire.batch import Flag, Header
from quothwire.errors import error


class CommitTail(NamedTuple):
    """The place of a transaction in the log. segment: the active one. first: its first pointer. before,
    producers: snapshots of the producer table without the transaction, and with it."""

    segment: ActiveSegment
    first: int
    boot_id: bytes
    before: bytes
    producers: bytes


@dataclass
class _Final:
    """A file that becomes a segment, with the offsets of its batches and their headers."""

    path: Path
    batches: list[tuple[int, Header]] = field(default_factory=list)


class Commit:
    """One large transaction on its way. One thread at a time.

    files: those of the parts, in order. records, batches: how many they hold.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        log_id: int,
        key: TransactionKey,
        files: Sequence[StagedFile],
        options: LogOptions,
    ) -> None:
        self.key = key
        self.records = sum(file.records for file in files)
        self.batches = sum(file.batches for file in files)
        self.tail: CommitTail | None = None
        self.active: ActiveSegment | None = None
        """The segment with which the log goes on, once that is decided."""
        self.segments: list[Segment] = []
        self._filesystem = filesystem
        self._directory = directory
        self._log_id = log_id
        self._groups = list(_grouped(files, options))
        self._free_min = options.disk_free_min
        self._finals: list[_Final] = []

    def prepare(self) -> None:
        """Sync the staged files, and copy runs of small ones. Raises ``disk_low`` or OSError."""
        last = len(self._groups) - 1
        copied = [group for row, group in enumerate(self._groups) if len(group) > 1 or row == last]
        size = sum(file.size for group in copied for file in group)
        need_room(self._filesystem, self._directory, self._free_min + size)
        for row, group in enumerate(self._groups):
            if len(group) > 1 or row == last:
                self._copy(row, group, is_last=row == last)
            else:
                self._keep(group[0])

    def commit(self) -> None:
        """Make it a part of the log, durably. Raises OSError.

        As long as `active` is None afterwards nothing of it was published, unless it was `NotDurable`.
        """
        assert self.tail is not None
        old, position, chain = self.tail.segment, self.tail.segment.end, self.tail.segment.chain
        with _no_way_back("what was written before a transaction"):
            old.sync()
        written: list[ActiveSegment] = []
        base = self.tail.first
        for final in self._finals:
            one = self._stamp(final, base, position, chain)
            written.append(one)
            position, chain, base = one.end, one.chain, one.end.pointer + 1
        plan = CommitPlan(
            [(one.path.name, done.floor) for one, done in zip(self._finals, written, strict=True)], base
        )
        plan.write(self._filesystem, self._directory)
        self.active = self._decide(
            Block(
                self._log_id, base, position.pointer, position.ordinal, chain, self.tail.boot_id,
                self.tail.producers,
            )
        )  # fmt: skip
        with _no_way_back("the names of a transaction's segments"):
            plan.carry_out(self._filesystem, self._directory, dict.fromkeys(dict(plan.names), 0))
            self._filesystem.remove(self._directory / file_format.PLAN_NAME)
        for one, following in zip(written, [*(one.floor for one in written[1:]), base], strict=True):
            # once: in each of them it would be the most of small segments
            known = self.tail.producers if following == base else b""
            self.segments.append(one.sealed(following, self._finish(one, known)))

    def discard(self) -> None:
        """Remove the copies of a transaction that was not published. Raises OSError."""
        for final in self._finals:
            if final.path.name.endswith(file_format.MERGED_SUFFIX):
                self._filesystem.remove(final.path)

    # -- inside ---------------------------------------------------------------------------------------------

    def _keep(self, staged: StagedFile) -> None:
        """Let a file become a segment as it is."""
        final = _Final(staged.path)
        self._finals.append(final)
        with closing(reopened(self._filesystem, staged)) as file:
            final.batches += headers_in(file, staged.size, self._log_id)
            _need_all(final, staged.batches)
            sync_file(file)

    def _copy(self, row: int, group: Sequence[StagedFile], *, is_last: bool) -> None:
        """Let a file with the batches of several, one behind the other, become a segment."""
        final = _Final(self._directory / file_format.merged_name(*self.key, row))
        self._finals.append(final)
        with closing(self._filesystem.create(final.path)) as copy:
            copy.append([bytes(BLOCK_BYTES)])
            for staged in group:
                self._append(copy, staged, final, is_last=is_last and staged is group[-1])
            _need_all(final, sum(staged.batches for staged in group))
            sync_file(copy)

    def _append(self, copy: File, staged: StagedFile, final: _Final, *, is_last: bool) -> None:
        """Copy the batches of a file, the last one of all with the flag that says so."""
        shift = copy.size() - BLOCK_BYTES
        with readable():
            file = self._filesystem.open(staged.path)
        found = list(headers_in(file, staged.size, self._log_id))
        final.batches += [(offset + shift, header) for offset, header in found]
        whole = Hole(BLOCK_BYTES, found[-1][0] if is_last and found else staged.size)
        pieces = parts(file, whole)
        while (piece := _next_of(pieces)) is not None:
            copy.append([piece])
        if is_last and found:
            ended = _ended(file, *found[-1])
            copy.append([ended])
            final.batches[-1] = final.batches[-1][0], batch.parse_header(ended, 0)
        file.close()

    def _stamp(self, final: _Final, base: int, before: LogPosition, chain: int) -> ActiveSegment:
        """Give the batches of a file their places, and the file what else a segment has; synced."""
        assert self.tail is not None
        block = Block(self._log_id, base, before.pointer, before.ordinal, chain, self.tail.boot_id, b"")
        file = self._filesystem.open(final.path, overwrite=True)
        one = ActiveSegment(self._filesystem, self._directory, block, file)
        for offset, header in final.batches:
            placed = header.placed(base, one.end.ordinal)
            stamped = batch.stamp(placed, self._log_id)
            file.overwrite(stamped, offset)
            one.take(offset, placed, stamped)
            base += header.records
        file.overwrite(file_format.encode_block(block), 0)
        sync_file(file)
        file.close()  # there may be more of them than a process may have open
        return one

    def _decide(self, block: Block) -> ActiveSegment:
        """Make the segment with which the log goes on. Without it the plan has to go, durably: it might come
        back when another segment has the name of its successor."""
        try:
            return begin_segment(self._filesystem, self._directory, block)
        except NotDurable:
            raise
        except OSError:
            with _no_way_back("the end of a plan"), durable_names(self._filesystem, self._directory):
                self._filesystem.remove(self._directory / file_format.PLAN_NAME)
            raise

    def _finish(self, one: ActiveSegment, producers: bytes) -> int:
        """Write footer and index, without waiting for the disk: a reader can do without them.

        producers: a snapshot for the index. Returns the size of the segment's file.
        """
        size = one.end.offset
        with suppress(OSError):
            file = self._filesystem.open(one.path, overwrite=True)
            try:
                file.overwrite(one.footer_bytes, size)
            except OSError:
                file.truncate(size)  # half a footer would be taken for damage
            size = file.size()
            file.close()
            one.write_checkpoint(producers, durably=False)
        return size


def _next_of(pieces: Iterator[bytes]) -> bytes | None:
    with readable():
        return next(pieces, None)


@contextmanager
def _no_way_back(what: str) -> Iterator[None]:
    """Raise `NotDurable` for any failure, after which the contents of the disk are unknown."""
    try:
        yield
    except NotDurable:
        raise
    except OSError as problem:
        raise NotDurable(what, problem) from problem


def _grouped(files: Sequence[StagedFile], options: LogOptions) -> Iterator[list[StagedFile]]:
    """Files that follow each other and fit into one segment."""
    group: list[StagedFile] = []
    size = records = 0
    for file in files:
        size, records = size + file.bytes, records + file.records
        too_many = options.count_limit and records > options.count_limit
        if group and (too_many or BLOCK_BYTES + size > options.roll_bytes):
            yield group
            group, size, records = [], file.bytes, file.records
        group.append(file)
    yield group


def _ended(file: File, offset: int, header: Header) -> bytes:
    """The last batch of a transaction, which says so: its checksums are made anew, so they have to check."""
    raw = raw_at(file, offset, header)
    if not is_intact(raw, header):
        raise error("damaged", "the last staged batch does not check", CANNOT_BE_READ)
    return batch.claimed(raw, header, header.producer, header.sequence, int(Flag.TRANSACTION | Flag.END))


def _need_all(final: _Final, batches: int) -> None:
    if len(final.batches) != batches:
        raise error("damaged", f"{final.path.name} holds {len(final.batches)} batches, not {batches}")
