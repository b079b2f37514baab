"""The end of an open log: appends batches, syncs them, makes them visible, and rolls to the next segment.

    append_batches    check, allocate pointers, one write             -> written
    sync              fsync of the active segment                     -> synced
    roll              sync, begin the next segment, seal the old one

Not thread-safe: it belongs to the owner of the log. A `SyncRequest` may be executed in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from quothlog.active_segment import ActiveSegment, begin_segment
from quothlog.file_format import HORIZON_US, Block, LogPosition
from quothlog.recovery.recovery import OpenedDirectory
from quothlog.retention import LogOptions, roll_size
from quothlog.storage.clock import Clock
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.disk_space import DiskSpace
from quothlog.storage.filesystem import Buffer, FileSystem
from quothlog.storage.write_failure import WriteFailure
from quothlog.transactions.commit import Commit, CommitTail
from quothlog.transactions.table import StoredTransaction
from quothwire import batch
from quothwire.batch import HEADER_BYTES, Header
from quothwire.errors import QuothError, error
from quothwire.ingest import check_new, check_published
from quothwire.pointer import POINTER_MAX

AHEAD_US = 60_000_000
"""Pointers are times. If one is further ahead of the clock than this, a clock was wrong once, or is."""


@dataclass(slots=True)
class Appended:
    """The pointers of a stored batch. duplicate: it was stored before, with these pointers."""

    first: int
    last: int
    count: int
    duplicate: bool


class SyncRequest(NamedTuple):
    """A request for an fsync of everything before `end`."""

    segment: ActiveSegment
    end: LogPosition

    def run(self) -> None:
        """Sync the segment, in any thread. Raises OSError."""
        self.segment.sync()


class WriteGroup:
    """The batches that one write stores, and the outcomes of all that came with them."""

    __slots__ = ("bytes", "outcomes", "records", "rows", "waiting")

    def __init__(self, outcomes: list[Appended | QuothError]) -> None:
        self.outcomes = outcomes
        self.waiting: list[tuple[Header, bytes, Buffer]] = []
        self.rows: list[int] = []
        """The places of the waiting batches among the outcomes."""
        self.records = 0
        self.bytes = 0


class PointerAllocator:
    """Allocates base = max(now, last + 1), and counts how often the clock steps back."""

    __slots__ = ("_clock", "_latest_now", "clock_steps", "last", "step_us")

    def __init__(self, clock: Clock, last: int) -> None:
        self._clock = clock
        self._latest_now = 0
        self.last = last
        self.clock_steps = 0
        self.step_us = 0

    def take(self, records: int, now: int) -> int:
        """Return the base pointer for a batch. Raises `Conflict` ``pointers_exhausted``; never wraps."""
        if now < self._latest_now:
            self.clock_steps += 1
            self.step_us = max(self.step_us, self._latest_now - now)
        self._latest_now = now
        base = max(now, self.last + 1)
        if base + records - 1 > POINTER_MAX:
            raise error("pointers_exhausted", f"{records} records from pointer {base}")
        self.last = base + records - 1
        return base

    def gauges(self) -> dict[str, int]:
        """Return the largest step back of the clock, and how far the last pointer is ahead of it now."""
        return {"clock_step_us": self.step_us, "pointer_ahead_us": max(0, self.last - self._clock.now())}


class Appender:
    """The end of an open log.

    active: the segment that is being written. synced: the end of what survives a loss of power. written: of
    what readers may see at most. visible: one of these, by `synced_reads`. is_placed: a large transaction has
    pointers, so nothing may be appended before its adoption. is_hiding: the newest one is not visible yet.
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
        self._lock = lock
        self._opened = opened
        self._sealed, self._producers = opened.sealed, opened.producers
        self.active: ActiveSegment = opened.go_on_if_possible(clock)
        self.change(options)
        self.log_id = self.active.log_id
        self.applications = opened.producers.applications
        self.last_written = opened.producers.last_written
        self.pointers = PointerAllocator(clock, max(self.active.end.pointer, self.active.floor - 1))
        self.visible = self.written = self.synced = self.active.end
        self.write_failure = WriteFailure(filesystem, directory)
        self._space = DiskSpace(filesystem, directory)
        self.rolls = 0
        self.is_placed = self.is_hiding = False
        self._barrier = 0  # the last pointer of the newest transaction, which is visible once it is synced

    def change(self, options: LogOptions) -> None:
        """Use other options from now on."""
        self.options = options
        self._roll_size = roll_size(options, self.active)

    @property
    def is_publishing(self) -> bool:
        """True while appends have to wait for a transaction that is not synced yet."""
        return self.is_hiding and self.write_failure.failure is None

    @property
    def bytes_left(self) -> int:
        """Bytes that can be appended at least before the active segment has to be sealed."""
        left = self._roll_size - self.active.size
        if self.options.count_limit:  # a record takes a byte or more
            left = min(left, self.options.count_limit - self.active.records)
        return max(0, left)

    # -- appending ----------------------------------------------------------------------------------------

    def append_batches(self, raws: Sequence[Buffer]) -> list[Appended | QuothError]:
        """Append encoded batches, with one write if they fit into the active segment.

        Returns an outcome for each. A batch that is refused does not affect the others.
        """
        if self.is_hiding and self.write_failure.failure is None:
            return [error("busy", "a transaction is being published")] * len(raws)
        producers = self._producers
        if producers.is_changed and not self.is_placed:
            producers.undo()  # of a call that was interrupted
        group = WriteGroup([])
        fits = sum(map(len, raws)) <= self.bytes_left
        now = self.clock.now()
        for raw in raws:
            try:
                self.check_writable()
                if self._opened.successor is not None:
                    self._finish_opening()
                header = batch.check(raw)
                check_published(header)
                stored = producers.admit(header, now)
                if stored is None:  # a duplicate may have been stored before these checks existed
                    check_new(raw, header)
                must_roll = not fits and self._must_roll(header.records, header.size, group)
                if group.waiting and (must_roll or stored is not None):
                    group = self._write(group, now)
                    self.check_writable()  # or it would be written behind what has failed
                    stored = producers.admit(header, now)
                    must_roll = self._must_roll(header.records, header.size, group)
                if stored is not None:
                    last = stored.first + stored.records - 1
                    group.outcomes.append(Appended(stored.first, last, stored.records, True))
                    continue
                if must_roll:
                    self.roll()
                base = self.pointers.take(header.records, now)
                self._add(group, header, memoryview(raw)[HEADER_BYTES:], base)
            except QuothError as problem:
                group.outcomes.append(problem.with_traceback(None))  # which has this frame, and all batches
        if group.waiting:
            self._write(group, now)
        return group.outcomes

    def append_transaction(self, batches: Sequence[tuple[Header, Buffer]]) -> Appended:
        """Append a transaction with one write. It is visible, and others may append, once it is synced.

        batches: headers without pointers, and bodies. Raises what is the outcome of other batches; nothing
        of the transaction is stored then.
        """
        self.check_writable()
        self._finish_opening()
        self._producers.undo()
        records, size = sum(one.records for one, _ in batches), sum(one.size for one, _ in batches)
        group = WriteGroup([])
        if self._must_roll(records, size, group):
            self.roll()
        now = self.clock.now()
        first = base = self.pointers.take(records, now)
        for header, body in batches:
            self._add(group, header, body, base)
            base += header.records
        self._barrier = base - 1
        self.is_hiding = True
        self._write(group, now)
        outcome = group.outcomes[0]
        if isinstance(outcome, QuothError):
            self._barrier = 0
            self._show()
            raise outcome
        return Appended(first, base - 1, records, False)

    # -- syncing and sealing ------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make everything that was appended survive a loss of power. Raises `BrokerFailure`."""
        request = self.begin_sync()
        try:
            request.run()
        except OSError as problem:
            raise self.write_failure.fail(problem) from problem
        self.finish_sync(request)

    def begin_sync(self) -> SyncRequest:
        """Return a request for an fsync of everything appended so far, to be given to `finish_sync` later.

        Raises `BrokerFailure` after a failed fsync: the next one would succeed and mean nothing.
        """
        self.check_writable()
        return SyncRequest(self.active, self.active.end)

    def finish_sync(self, request: SyncRequest) -> None:
        """Record a successful fsync."""
        if self.write_failure.failure is not None:
            return
        if request.segment is self.active and request.end > self.synced:
            self.synced = request.end
        self._show()

    def roll(self) -> None:
        """Sync the active segment, begin the next one durably, then seal the old one."""
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
        try:
            self._go_on_in(begin_segment(self.filesystem, self.directory, block))
            self._sealed.append(old.seal(producers, self.active.floor))
        except OSError as problem:
            raise self.as_error(problem, block.size) from problem
        except QuothError:
            raise
        except BaseException:
            self.write_failure.interrupt()
            raise
        self.rolls += 1
        self._show()

    # -- a large transaction ------------------------------------------------------------------------------

    def place(self, commit: Commit) -> None:
        """Give a large transaction its pointers; nothing is appended until it is adopted or withdrawn."""
        self.check_writable()
        self._finish_opening()
        self._producers.undo()
        (application, version), records = commit.key, commit.records
        self.pointers.last = max(self.pointers.last, self.active.floor)  # two segments cannot have one name
        first = self.pointers.take(records, self.clock.now())
        before = self._producers.encode(self.clock.now())
        stored = StoredTransaction(version, first, records, commit.batches)
        self._producers.store_transaction(application, stored)
        snapshot = self._producers.encode(self.clock.now())
        self.is_placed = self.is_hiding = True
        commit.tail = CommitTail(self.active, first, self.clock.boot_id(), before, snapshot)

    def adopt(self, commit: Commit) -> None:
        """Go on behind a large transaction that is committed."""
        old, segments = self.active, commit.segments
        assert commit.tail is not None
        self._go_on_in(cast(ActiveSegment, commit.active))
        self._producers.commit()
        if old.records:
            self._sealed.append(old.seal(commit.tail.before, segments[0].floor))
        else:
            old.file.close()
            try:
                old.remove()
            except OSError:  # retention removes it before those behind it
                self._sealed.append(old.sealed(segments[0].floor, old.end.offset))
        self._sealed += segments
        self.is_placed = False
        self.rolls += len(segments)
        self._show()

    def withdraw(self) -> None:
        """Go on without the large transaction that was placed."""
        self._producers.undo()
        self.is_placed = False
        self._show()

    def check_writable(self) -> None:
        """Raise the reason if the log takes no writes."""
        if self.write_failure.failure is not None:
            raise self.write_failure.failure
        if self._lock.released:
            raise error("closed", f"{self.directory.name} was closed, or a fork left it to the parent", "")

    def as_error(self, problem: OSError | QuothError, size: int) -> QuothError:
        """Return the error for the client. size: the bytes that were to be written."""
        return self.write_failure.as_error(problem, self.options.disk_free_min + size)

    # -- inside -------------------------------------------------------------------------------------------

    def _finish_opening(self) -> None:
        """Begin the segment that the opening had no room for. Raises ``disk_low`` or ``storage_failed``."""
        if self._opened.successor is not None:
            try:
                self._go_on_in(self._opened.go_on(self.clock))
            except OSError as problem:
                raise self.as_error(problem, self._opened.successor.bytes_min) from problem
            self.pointers.last = max(self.pointers.last, self.active.floor - 1)
            self._show()

    def _go_on_in(self, active: ActiveSegment) -> None:
        self.active, self.synced = active, active.end
        self._roll_size = roll_size(self.options, active)

    def _must_roll(self, records: int, size: int, group: WriteGroup) -> bool:
        """Return True if the active segment has to be sealed before it takes more than a group."""
        waiting = self.active.records + group.records
        if not waiting:
            return False
        if self.options.count_limit and waiting + records > self.options.count_limit:
            return True
        return self.active.end.offset + group.bytes + size > self._roll_size

    def _add(self, group: WriteGroup, header: Header, body: Buffer, base: int) -> None:
        """Add a batch with these pointers to a group."""
        records = header.records
        header = header.placed(base, self.active.end.ordinal + group.records)
        self._producers.store(header)
        group.waiting.append((header, batch.stamp(header, self.log_id), body))
        group.rows.append(len(group.outcomes))
        group.outcomes.append(Appended(base, base + records - 1, records, False))
        group.records += records
        group.bytes += HEADER_BYTES + header.body_bytes

    def _write(self, group: WriteGroup, now: int) -> WriteGroup:
        """Write all waiting batches of a group at a time, or none. Returns a group for what follows."""
        try:
            self._space.need(group.bytes, self.options.disk_free_min, now)
            self.active.append(group.waiting)
        except (OSError, QuothError) as problem:
            self._producers.undo()
            refused = self.as_error(problem, group.bytes)
            for row in group.rows:
                group.outcomes[row] = refused
        except BaseException:
            self.write_failure.interrupt()
            raise
        else:
            self._producers.commit()
            self._show()
        return WriteGroup(group.outcomes)

    def _show(self) -> None:
        """Advance the ends of what readers see: a transaction is visible once it is synced."""
        self.is_hiding = self.is_placed or self._barrier > self.synced.pointer
        end, synced, floor = self.active.end, self.synced, self.active.floor
        if not self.is_hiding and end.pointer <= max(synced.pointer, floor - 1) + HORIZON_US:
            self.written = end
        elif synced.pointer >= self.written.pointer:
            self.written = synced
        shown = synced if self.options.synced_reads else self.written
        if shown.pointer >= self.visible.pointer:  # the option may have changed
            self.visible = shown
