"""The tip of a log: where it grows. What is appended gets its place, is written, synced, and seen.

It owns the active segment and seals it when it is full. Not thread-safe: it belongs to the owner of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from quothlog import segment
from quothlog.appending.pointer_allocator import HORIZON_US, PointerAllocator
from quothlog.appending.sync_request import SyncRequest
from quothlog.appending.write_group import Appended, WriteGroup
from quothlog.file_format import Block
from quothlog.recovery.recovery import OpenedDirectory
from quothlog.retention import LogOptions, outgrown, room_in
from quothlog.segment import ActiveSegment
from quothlog.storage.clock import Clock
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.disk_space import need_room
from quothlog.storage.filesystem import DISK_FULL, Buffer, FileSystem
from quothlog.storage.write_failure import WriteFailure
from quothlog.transactions.commit import Commit, Tail
from quothlog.transactions.table import StoredTransaction
from quothwire import batch
from quothwire.batch import Header, Parsed
from quothwire.errors import Conflict, QuothError, error
from quothwire.ingest import check_new, check_published


class Appender:
    """The end of a log that is open.

    active: the segment that is being written. synced: what survives a loss of power. visible: what readers
    may see. is_placed: does a publication have its place, so that nothing may be appended before it is there?
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        clock: Clock,
        options: LogOptions,
        lock: DirectoryLock,
        opened: OpenedDirectory,
    ) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.clock = clock
        self.options = options
        self._lock = lock
        self._opened = opened
        self._sealed = opened.sealed
        self._producers = opened.producers
        self.active: ActiveSegment = self._begin()
        self.applications = opened.producers.applications
        self.pointers = PointerAllocator(clock, max(self.active.end.pointer, self.active.floor - 1))
        self.visible = self.synced = self.active.end
        self.write_failure = WriteFailure(filesystem, directory)
        self.rolls = 0
        self.is_placed = False
        self._barrier = 0
        """The last pointer of the transaction that was appended last: it is seen once it is synced."""

    @property
    def log_id(self) -> int:
        """The id of the log."""
        return self.active.log_id

    @property
    def is_publishing(self) -> bool:
        """Do others have to wait with what they append? Until a transaction has been synced they do."""
        return self.is_hiding and self.write_failure.failure is None

    @property
    def is_hiding(self) -> bool:
        """Is there a transaction that readers must not see yet? After a failure nobody will know of it."""
        return self.is_placed or self._barrier > self.synced.pointer

    # -- appending ----------------------------------------------------------------------------------------

    def append_batches(self, raws: Sequence[Buffer]) -> list[Appended | QuothError]:
        """Append encoded batches; each has its own outcome, and those that are stored are written at once."""
        if self.is_publishing:
            return [error("busy", "a transaction is being published")] * len(raws)
        if not self.is_placed:  # by now only after a failure, and then it may be decided all the same
            self._producers.undo()  # what a call that was broken off left behind
        burst = WriteGroup([])
        fits = sum(map(len, raws)) <= room_in(self.options, self.active)
        for raw in raws:
            try:
                header, *_ = parsed = self._checked(raw)
                before = self._producers.admit(header, self.clock.now())
                if before is None:  # what was stored before there were these checks is still a duplicate
                    check_new(parsed)
                roll = not fits and self._must_roll(header, burst)
                if burst.waiting and (roll or before is not None):
                    burst = self._write(burst)
                    before = self._producers.admit(header, self.clock.now())
                    roll = self._must_roll(header, burst)
                if before is not None:
                    last = before.first + before.records - 1
                    burst.outcomes.append(Appended(before.first, last, before.records, True))
                    continue
                if roll:
                    self.roll()
                self._place(header, memoryview(raw)[batch.HEADER_BYTES :], burst)
            except QuothError as problem:
                burst.outcomes.append(problem)
        return self._write(burst).outcomes

    def append_transaction(self, batches: Sequence[tuple[Header, Buffer]]) -> Appended:
        """Append a transaction in one write. Readers see it, and others append, once it has been synced.

        batches: headers without a place, and bodies. Raises what is told as the outcome of other batches;
        nothing of it is there then.
        """
        self.check_writable()
        self._finish_opening()
        self._producers.undo()
        records, size = sum(one.records for one, _ in batches), sum(one.size for one, _ in batches)
        if outgrown(self.options, self.active, (0, 0), (records, size)):
            self.roll()
        first = base = self.pointers.take(records)
        burst = WriteGroup([])
        for header, body in batches:
            self._place(header, memoryview(body), burst, base)
            base += header.records
        self._barrier = base - 1
        (outcome, *_) = self._write(burst).outcomes
        if isinstance(outcome, QuothError):
            self._barrier = 0
            raise outcome
        return Appended(first, base - 1, records, False)

    # -- syncing and sealing ------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make everything that was appended survive a loss of power. Raises `BrokerFailure`."""
        ticket = self.begin_sync()
        try:
            ticket.run()
        except OSError as problem:
            raise self.write_failure.fail(problem) from problem
        self.finish_sync(ticket)

    def begin_sync(self) -> SyncRequest:
        """An fsync for everything appended so far, to be run anywhere and handed to `finish_sync`.

        Raises `BrokerFailure` once one has failed: the next one would succeed and mean nothing.
        """
        self.check_writable()
        return SyncRequest(self.active, self.active.end)

    def finish_sync(self, ticket: SyncRequest) -> None:
        """Take note of an fsync that returned."""
        if self.write_failure.failure is not None:
            return
        if ticket.segment is self.active and ticket.end > self.synced:
            self.synced = ticket.end
        self._show()

    def roll(self) -> None:
        """Sync the active segment, make the next one durable, then seal the old one."""
        self.check_writable()
        if self.is_placed:
            raise error("busy", "a transaction is being published")
        if self._opened.successor is not None:
            self._finish_opening()
            return
        self.sync()
        old = self.active
        producers = self._producers.encode(self.clock.now())
        block = Block(
            old.log_id, self.pointers.last + 1, old.end.pointer, old.end.ordinal, old.chain,
            self.clock.boot_id(), producers,
        )  # fmt: skip
        with self.write_failure.whole_or_failed():
            try:
                self.active = segment.begin(self.filesystem, self.directory, block)
            except OSError as problem:
                raise self.as_error(problem, block.size) from problem
            self._sealed.append(old.seal(producers, self.active.floor))
        self.synced = self.active.end
        self.rolls += 1
        self._show()

    # -- a large transaction ------------------------------------------------------------------------------

    def place(self, publication: Commit) -> None:
        """Give a publication its place; nothing is appended until it is adopted or withdrawn."""
        self.check_writable()
        self._finish_opening()
        self._producers.undo()
        (application, version), records = publication.key, publication.records
        self.pointers.last = max(self.pointers.last, self.active.floor)  # two segments cannot have one name
        first = self.pointers.take(records)
        before = self._producers.encode(self.clock.now())
        self.applications.add(application, StoredTransaction(version, first, records, publication.batches))
        snapshot = self._producers.encode(self.clock.now())
        self.is_placed = True
        publication.tail = Tail(self.active, first, self.clock.boot_id(), before, snapshot)

    def adopt(self, publication: Commit) -> None:
        """Go on behind a publication that is committed."""
        old, segments = self.active, publication.segments
        assert publication.active is not None
        assert publication.tail is not None
        self.active = publication.active
        self._producers.commit()
        if old.records:
            self._sealed.append(old.seal(publication.tail.before, segments[0].floor))
        else:
            old.file.close()
            with suppress(OSError):  # it is empty: nobody minds it
                old.remove()
        self._sealed += segments
        self.synced, self.is_placed = self.active.end, False
        self.rolls += len(segments)
        self._show()

    def withdraw(self) -> None:
        """Go on without the publication that was given a place."""
        self._producers.undo()
        self.is_placed = False

    # -- what is wrong with it ----------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise why the log takes no more writes, if it does not."""
        if self.write_failure.failure is not None:
            raise self.write_failure.failure
        if self._lock.released:
            raise error("closed", f"{self.directory.name} was closed, or a fork left it to the parent", "")

    def as_error(self, problem: OSError | QuothError, size: int) -> QuothError:
        """What is told of something that went wrong; size: the bytes that were to be written."""
        return self.write_failure.as_error(problem, self.options.disk_free_min + size)

    # -- inside -------------------------------------------------------------------------------------------

    def _begin(self) -> ActiveSegment:
        """The segment to go on with; without room or pointers for a new one the old one, for reading."""
        try:
            return self._opened.go_on(self.clock)
        except (OSError, Conflict) as problem:
            is_full = isinstance(problem, Conflict) or problem.errno in DISK_FULL
            if not is_full or self._opened.active is None:
                raise
            return self._opened.active

    def _finish_opening(self) -> None:
        """Begin the segment that opening had no room for. Raises ``disk_low`` or ``storage_failed``."""
        if self._opened.successor is not None:
            try:
                self.active = self._opened.go_on(self.clock)
            except OSError as problem:
                raise self.as_error(problem, self._opened.successor.room) from problem
            self.pointers.last = max(self.pointers.last, self.active.floor - 1)
            self.synced = self.active.end
            self._show()

    def _checked(self, raw: Buffer) -> Parsed:
        self.check_writable()
        self._finish_opening()
        parsed = batch.parse(raw)
        check_published(parsed.header)
        return parsed

    def _must_roll(self, header: Header, burst: WriteGroup) -> bool:
        waiting = burst.records, burst.bytes
        return outgrown(self.options, self.active, waiting, (header.records, header.size))

    def _place(self, header: Header, body: memoryview, burst: WriteGroup, base: int = 0) -> None:
        """Give a batch its pointers, unless it has them, and put it behind the others of its burst."""
        base = base or self.pointers.take(header.records)
        header = header.placed(base, self.active.end.ordinal + burst.records)
        self._producers.store(header)
        burst.add(header, batch.stamp(header, self.log_id), body)

    def _write(self, burst: WriteGroup) -> WriteGroup:
        """Write what waits in a burst: all of it, or none was ever there."""
        if burst.waiting:
            try:
                if floor := self.options.disk_free_min:
                    need_room(self.filesystem, self.directory, floor + burst.bytes)
                with self.write_failure.whole_or_failed():
                    self.active.append(burst.waiting)
            except (OSError, QuothError) as problem:
                self._producers.undo()
                burst.refuse(self.as_error(problem, burst.bytes))
            else:
                self._producers.commit()
                self._show()
        return WriteGroup(burst.outcomes)

    def _show(self) -> None:
        """Let readers see what they may see by now, nothing of a transaction before it is synced."""
        end = self.active.end
        horizon = max(self.synced.pointer, self.active.floor - 1) + HORIZON_US
        if not self.options.synced_reads and not self.is_hiding and end.pointer <= horizon:
            self.visible = end
        elif self.synced.pointer >= self.visible.pointer:
            self.visible = self.synced
