"""The log: the ordered segments of one directory, with one writer.

Not thread-safe: it has one owner. Two things may happen elsewhere, so that they hold nobody up: a `Lookup` in
a sealed segment can be read by any thread, and a `SyncTicket` can be run by any thread and is handed back to
`finish_sync`.

    append    check, give out pointers, one write            -> in the operating system: "written"
    sync      fsync of the active segment                    -> on the disk: "synced"
    visible   what readers may see: everything written, or with `synced_reads` everything synced; never a
              pointer more than 10 s above the newest synced one, so that a loss of power cannot make the log
              give out a pointer that somebody has seen
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from quothlog import segment
from quothlog.burst import Appended, Burst
from quothlog.clock import Clock, SystemClock
from quothlog.dirlock import DirectoryLock
from quothlog.extract import Extract
from quothlog.filesystem import DISK_FULL, Buffer, FileSystem, PosixFileSystem, durable_names
from quothlog.findings import Findings
from quothlog.layout import Block
from quothlog.loginfo import LogInfo
from quothlog.lookup import DEFAULT_BYTES, UNLIMITED, Lookup, records_above
from quothlog.loss import Loss, loss_before
from quothlog.pointers import HORIZON_US, PointerIssuer
from quothlog.ranges import Survey
from quothlog.recovery import Watch, open_directory
from quothlog.retention import LogOptions, due_for_roll, expired, next_due, outgrown, room_in, wholly_below
from quothlog.room import need_room, shortage
from quothlog.segment import ActiveSegment
from quothlog.ticket import SyncTicket
from quothwire import batch
from quothwire.batch import Flag, Header, Kind
from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX, check_pointer
from quothwire.record import Record


class Log:
    """The log in a directory. Make it with `Log.open`; close it, or use it as a context manager."""

    def __init__(
        self,
        directory: Path,
        filesystem: FileSystem,
        clock: Clock,
        options: LogOptions,
        log_id: int,
        others: Collection[str],
        watch: Watch | None,
    ) -> None:
        self.directory = directory
        self.options = options
        self._filesystem = filesystem
        self._clock = clock
        self._lock = DirectoryLock(directory)
        try:
            self._opened = open_directory(filesystem, directory, clock, log_id, others, watch)
            self._active = self._begin()
        except BaseException:
            self._lock.release()
            raise
        self.findings: Findings = self._opened.findings
        self._sealed = self._opened.sealed
        self._producers = self._opened.producers
        self._issuer = PointerIssuer(clock, max(self._active.end.pointer, self._active.floor - 1))
        self._visible = self._synced = self._active.end
        self._failure: QuothError | None = None
        self._first: int | None = None
        self._rolls = 0

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        options: LogOptions | None = None,
        log_id: int = 0,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        others: Collection[str] = (),
        watch: Watch | None = None,
    ) -> Self:
        """Open the log in a directory, or begin one.

        log_id: the id of a log that is begun (0: a random one), or that the directory must hold. others:
        names of files that are not the log's and no strays either. watch: told how far the opening is.
        Raises `Conflict` ``locked``, `Damaged`, or OSError.
        """
        path = Path(directory)
        filesystem = filesystem or PosixFileSystem()
        filesystem.make_directory(path)
        return cls(path, filesystem, clock or SystemClock(), options or LogOptions(), log_id, others, watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what it is -------------------------------------------------------------------------------------

    @property
    def log_id(self) -> int:
        """The random 64-bit id of this log."""
        return self._active.log_id

    @property
    def newest(self) -> int:
        """The newest pointer that readers may see, 0 if there is none."""
        return self._visible.pointer

    @property
    def end_ordinal(self) -> int:
        """Records that the log ever held, as far as readers may see."""
        return self._visible.ordinal

    @property
    def first_ordinal(self) -> int:
        """Records that are not kept any more: the ordinal of the oldest one."""
        return (self._sealed.oldest() or self._active).start.ordinal

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that a loss of power may take."""
        return self._active.end.offset - self._synced.offset

    @property
    def unsynced_records(self) -> int:
        """Records that a loss of power may take."""
        return self._active.end.ordinal - self._synced.ordinal

    @property
    def synced_pointer(self) -> int:
        """The newest pointer that survives a loss of power."""
        return self._synced.pointer

    @property
    def failure(self) -> QuothError | None:
        """Why the log takes no more writes, None if it does."""
        return self._failure

    def info(self) -> LogInfo:
        """Tell everything about the log as it stands."""
        segments, issuer, findings = [*self._sealed, self._active], self._issuer, self.findings
        return LogInfo(
            log_id=self.log_id,
            first=self._first_pointer(),
            last=self.newest,
            first_ordinal=self.first_ordinal,
            end_ordinal=self.end_ordinal,
            bytes=sum(one.size for one in segments),
            segments=len(segments),
            states="".join("r" if one.loaded else "h" for one in self._sealed) + "w",
            counters={"clock_steps": issuer.clock_steps, "rolls": self._rolls, **findings.counters()},
            gauges={
                **issuer.gauges(),
                "unseen_records": self._active.end.ordinal - self.end_ordinal,
                "producers": len(self._producers),
                **findings.gauges(),
            },
        )

    # -- writing ----------------------------------------------------------------------------------------

    def append(
        self,
        values: bytes | Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes]] | None = None,
    ) -> Appended:
        """Append one value or several as one batch, all of it or nothing.

        The log stamps itself as the producer and its ordinal as the sequence, so that the batch can be
        forwarded later without ever being stored twice.
        """
        values = [values] if isinstance(values, bytes) else values
        encoded = [batch.encode_headers(one) for one in headers] if headers is not None else None
        sequence = self._active.end.ordinal + 1
        goes_on = self._producers.following(self.log_id, Flag.ORDINAL) == sequence
        flags = Flag.ORDINAL | (0 if goes_on else Flag.START)
        raw = batch.encode(values, keys, encoded, producer=self.log_id, sequence=sequence, flags=int(flags))
        (outcome,) = self.append_batches([raw])
        if isinstance(outcome, QuothError):
            raise outcome
        if outcome.last > self.newest and not self.options.synced_reads:
            self.sync()  # beyond the horizon an append waits for the sync, or nobody could read it
        return outcome

    def append_batches(self, raws: Sequence[Buffer]) -> list[Appended | QuothError]:
        """Append encoded batches; each has its own outcome, and those that are stored are written at once."""
        self._producers.undo()  # what a call that was broken off left behind
        burst = Burst([])
        fits = sum(map(len, raws)) <= self.room
        for raw in raws:
            try:
                header = self._checked(raw)
                before = self._producers.admit(header, self._clock.now())
                roll = not fits and self._must_roll(header, burst)
                if burst.waiting and (roll or before is not None):
                    burst = self._write(burst)
                    before = self._producers.admit(header, self._clock.now())
                    roll = self._must_roll(header, burst)
                if before is not None:
                    last = before.first + before.records - 1
                    burst.outcomes.append(Appended(before.first, last, before.records, True))
                    continue
                if roll:
                    self._roll()
                self._place(header, memoryview(raw)[batch.HEADER_BYTES :], burst)
            except QuothError as problem:
                burst.outcomes.append(problem)
        return self._write(burst).outcomes

    def sync(self) -> None:
        """Make everything that was appended survive a loss of power. Raises `BrokerFailure`."""
        ticket = self.begin_sync()
        try:
            ticket.run()
        except OSError as problem:
            self.fail(problem)
            raise self._failure or problem from problem
        self.finish_sync(ticket)

    def begin_sync(self) -> SyncTicket:
        """An fsync for everything appended so far, to be run anywhere and handed to `finish_sync`.

        Raises `BrokerFailure` once one has failed: the next one would succeed and mean nothing.
        """
        self._check_writable()
        return SyncTicket(self._active, self._active.end)

    def finish_sync(self, ticket: SyncTicket) -> None:
        """Take note of an fsync that returned."""
        if self._failure is not None:
            return
        if ticket.segment is self._active and ticket.end > self._synced:
            self._synced = ticket.end
        self._show()

    def fail(self, problem: OSError | QuothError) -> None:
        """Take no more writes: after a failed write or fsync nobody knows what the disk holds."""
        if isinstance(problem, OSError):
            problem = error("storage_failed", f"{self.directory.name}: {problem.strerror or problem}")
        self._failure = self._failure or problem

    def roll(self) -> bool:
        """Seal the active segment and begin a new one. An empty one stays, and the answer is False."""
        if not self._active.records:
            return False
        self._roll()
        return True

    @property
    def room(self) -> int:
        """So many bytes can be appended at least before the active segment has to be sealed."""
        return room_in(self.options, self._active)

    # -- reading ----------------------------------------------------------------------------------------

    def lookup(
        self, after: int, records_max: int = UNLIMITED, bytes_max: int = DEFAULT_BYTES
    ) -> Lookup | None:
        """Where the first records above `after` lie; None if readers may not see any yet."""
        check_pointer(after)
        if after >= self._visible.pointer:
            return None
        if self._is_in_active(after):
            return Lookup(self._active, self._visible, after, after, records_max, bytes_max)
        one, following = self._sealed.holding(after)
        self._sealed.keep(one)
        beyond = min((following or self._active).floor - 1, POINTER_MAX)
        return Lookup(one, None, after, beyond, records_max, bytes_max)

    def survey(self, after: int) -> Survey:
        """The log as readers may see it now, for questions about what lies above a pointer."""
        check_pointer(after)
        sealed = [] if self._is_in_active(after) else self._sealed
        return Survey([*sealed, self._active.as_of(self._visible)], self._visible)

    def fetch(
        self, after: int, records_max: int = UNLIMITED, bytes_max: int = DEFAULT_BYTES
    ) -> Extract | None:
        """The stored bytes of the first batches with records above `after`, across segments."""
        while (place := self.lookup(after, records_max, bytes_max)) is not None:
            found = place.read()
            if found is not None or not place.sealed:
                return found
            after = place.beyond
        return None

    def read(self, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        """Records with pointers above `after`, oldest first, until there are no more.

        A batch that does not check raises `Damaged`, which tells where to read on behind it.
        """
        return records_above(self.fetch, self.log_id, after, UNLIMITED if limit is None else limit)

    def loss(self, after: int, ordinal: int, found: Extract) -> Loss:
        """What is missing between a cursor and an extract; ordinal: -1 if the reader knows none."""
        return loss_before(found, after, ordinal, self._sealed, self._active, self.log_id)

    # -- what is kept -----------------------------------------------------------------------------------

    def trim(self, before: int) -> tuple[int, int]:
        """Remove the segments that hold only pointers below `before`; returns (records, bytes) removed."""
        check_pointer(before)
        return self._drop(
            lambda: wholly_below(before, self._sealed, self._active),
            lambda: self._active.end.pointer < before,
        )

    def retain(self) -> tuple[int, int]:
        """Do what `max_age`, `max_bytes` and `age_limit` ask for now; returns (records, bytes) removed."""
        now = self._clock.now()
        return self._drop(
            lambda: expired(self.options, self._sealed, self._active, now),
            lambda: due_for_roll(self.options, self._active, now),
        )

    def retention_due(self) -> int | None:
        """When `retain` will next have something to do, as a pointer; None if nothing will by itself."""
        return next_due(self.options, self._sealed, self._active)

    def rest(self) -> None:
        """Close the sealed segments that nobody reads."""
        self._sealed.rest()

    def close(self) -> None:
        """Sync, write the checkpoint, close, unlock. A log that failed is only closed and unlocked."""
        if self._lock.released:
            return
        try:
            if self._failure is None:
                self.sync()
                with suppress(OSError):  # it is derived: on a full disk the next opening takes longer
                    self._active.write_checkpoint(self._producers.encode(self._clock.now()))
        finally:
            self.discard()

    def discard(self) -> None:
        """Close and unlock without a word to the disk, as for a log that is being deleted."""
        self.rest()
        self._active.file.close()
        self._lock.release()

    # -- inside -----------------------------------------------------------------------------------------

    def _is_in_active(self, after: int) -> bool:
        """Are all records above a pointer in the active segment?"""
        return not self._sealed or after + 1 >= self._active.floor

    def _begin(self) -> ActiveSegment:
        """The segment to go on with; on a full disk the old one, for reading, until there is room."""
        try:
            return self._opened.go_on(self._clock)
        except OSError as problem:
            if problem.errno not in DISK_FULL or self._opened.active is None:
                raise
            return self._opened.active

    def _finish_opening(self) -> None:
        """Begin the segment that opening had no room for. Raises ``disk_low`` or ``storage_failed``."""
        if self._opened.successor is not None:
            try:
                self._active = self._opened.go_on(self._clock)
            except OSError as problem:
                raise self._as_error(problem, self._opened.successor.room) from problem
            self._issuer.last = max(self._issuer.last, self._active.floor - 1)
            self._synced = self._active.end
            self._show()

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._lock.released:
            raise error("closed", f"{self.directory.name} was closed, or a fork left it to the parent", "")

    def _checked(self, raw: Buffer) -> Header:
        self._check_writable()
        self._finish_opening()
        header = batch.check(raw)
        if header.kind != Kind.DATA or header.base or header.ordinal:
            raise error("bad_batch", "a producer leaves kind, pointer and ordinal to the log")
        if bool(header.producer) != bool(header.sequence):
            raise error("bad_batch", "a producer id and a sequence go together")
        return header

    def _must_roll(self, header: Header, burst: Burst) -> bool:
        waiting = burst.records, burst.bytes
        return outgrown(self.options, self._active, waiting, (header.records, header.size))

    def _place(self, header: Header, body: memoryview, burst: Burst) -> None:
        """Give a batch its pointers and put it behind the others of its burst."""
        base = self._issuer.take(header.records)
        header = header.placed(base, self._active.end.ordinal + burst.records)
        self._producers.store(header)
        burst.add(header, batch.stamp(header, self.log_id), body)

    def _write(self, burst: Burst) -> Burst:
        """Write what waits in a burst: all of it, or none was ever there."""
        if burst.waiting:
            try:
                if floor := self.options.disk_free_min:
                    need_room(self._filesystem, self.directory, floor + burst.bytes)
                with self._whole_or_failed():
                    self._active.append(burst.waiting)
            except (OSError, QuothError) as problem:
                self._producers.undo()
                burst.refuse(self._as_error(problem, burst.bytes))
            else:
                self._producers.commit()
                self._show()
        return Burst(burst.outcomes)

    @contextmanager
    def _whole_or_failed(self) -> Iterator[None]:
        """What is broken off in here, by Ctrl-C for one, leaves nobody knowing what the disk holds."""
        try:
            yield
        except (OSError, QuothError):
            raise
        except BaseException:
            self.fail(OSError("broken off while it was being written"))
            raise

    def _as_error(self, problem: OSError | QuothError, size: int) -> QuothError:
        """What is told of something that went wrong; size: the bytes that were to be written."""
        passing = shortage(problem, self._filesystem, self.directory, self.options.disk_free_min + size)
        if passing is not None:
            return passing
        self.fail(problem if isinstance(problem, OSError) else OSError(problem.text))
        return self._failure or error("storage_failed", str(problem))

    def _roll(self) -> None:
        """Sync the active segment, make the next one durable, then seal the old one."""
        if self._opened.successor is not None:
            self._finish_opening()
            return
        self.sync()
        old = self._active
        producers = self._producers.encode(self._clock.now())
        block = Block(
            old.log_id, self._issuer.last + 1, old.end.pointer, old.end.ordinal, old.chain,
            self._clock.boot_id(), producers,
        )  # fmt: skip
        with self._whole_or_failed():
            try:
                self._active = segment.begin(self._filesystem, self.directory, block)
            except OSError as problem:
                raise self._as_error(problem, block.size) from problem
            self._sealed.append(old.seal(producers, self._active.floor))
        self._synced = self._active.end
        self._rolls += 1
        self._show()

    def _show(self) -> None:
        """Let readers see what they may see by now."""
        end = self._active.end
        horizon = max(self._synced.pointer, self._active.floor - 1) + HORIZON_US
        if not self.options.synced_reads and end.pointer <= horizon:
            self._visible = end
        elif self._synced.pointer >= self._visible.pointer:
            self._visible = self._synced

    def _drop(self, removable: Callable[[], int], due: Callable[[], bool]) -> tuple[int, int]:
        """Remove what may go. Then roll, for which a full disk may have had no room, and remove again."""
        records, size = self._remove(removable())
        if self._active.records and due():
            self._roll()
            more = self._remove(removable())
            records, size = records + more[0], size + more[1]
        return records, size

    def _remove(self, count: int) -> tuple[int, int]:
        """Remove the oldest segments; whoever reads them keeps them until he is done."""
        if not count:
            return 0, 0
        before = self.first_ordinal
        self._first = None
        with durable_names(self._filesystem, self.directory):
            size = self._sealed.remove_oldest(count)
        return self.first_ordinal - before, size

    def _first_pointer(self) -> int:
        if self._first is None and self.first_ordinal < self.end_ordinal:
            firsts = (one.first() for one in (*self._sealed, self._active))
            self._first = next((first.base for first in firsts if first is not None), None)
        return self._first or 0
