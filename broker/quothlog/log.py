"""The log: the ordered segments of one directory, with one writer.

Not thread-safe: it has one owner. Two things may happen in other threads: a `ReadRequest` in a sealed segment
can be read there, and a `SyncRequest` can be run there, which then goes back to `finish_sync`.

    append    check, give out pointers, one write            -> in the operating system: "written"
    sync      fsync of the active segment                    -> on the disk: "synced"
    visible   what readers may see: everything written, or with `synced_reads` everything synced; never a
              pointer more than 10 s above the newest synced one, so that a loss of power cannot make the log
              give out a pointer that somebody has seen

Where it grows is its `appender`; here it is opened, read, and trimmed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from quothlog.appending.appender import Appender
from quothlog.appending.sync_request import SyncRequest
from quothlog.appending.write_group import Appended
from quothlog.file_format import Position
from quothlog.log_info import LogInfo
from quothlog.reading.gap import ReadLoss, loss_before
from quothlog.reading.range_query import LogSurvey
from quothlog.reading.read_request import DEFAULT_BYTES, UNLIMITED, ReadRequest, records_above
from quothlog.reading.segment_reader import Extract
from quothlog.recovery.recovery import Watch, open_directory
from quothlog.recovery.report import RecoveryReport
from quothlog.retention import LogOptions, due_for_roll, expired, next_due, room_in, wholly_below
from quothlog.segment import ActiveSegment
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.filesystem import Buffer, FileSystem, PosixFileSystem, durable_names
from quothlog.transactions.transactions import LogTransactions
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import QuothError
from quothwire.headers import encode_headers
from quothwire.pointer import POINTER_MAX, check_pointer
from quothwire.record import Record
from quothwire.text.paths import given_path


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
        self.filesystem = filesystem
        self._clock = clock
        self._lock = DirectoryLock(directory)
        try:
            self._opened = open_directory(filesystem, directory, clock, log_id, others, watch)
            self.appender = Appender(filesystem, directory, clock, options, self._lock, self._opened)
        except BaseException:
            self._lock.release()
            raise
        self.findings: RecoveryReport = self._opened.findings
        self._sealed = self._opened.sealed
        self._producers = self._opened.producers
        self._first: int | None = None

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
        Raises `Conflict` ``locked``, `RequestError` ``bad_setting`` for an empty path, `Damaged`,
        `BrokerFailure` ``unusable_system``, or OSError.
        """
        path = given_path(directory, "directory")
        filesystem, clock = filesystem or PosixFileSystem(), clock or SystemClock()
        clock.boot_id()  # each file that is begun says it: without it nothing is made or changed
        filesystem.make_directory(path)
        return cls(path, filesystem, clock, options or LogOptions(), log_id, others, watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def options(self) -> LogOptions:
        """How it rolls, what it keeps and what readers see; may be replaced at any time."""
        return self.appender.options

    @options.setter
    def options(self, options: LogOptions) -> None:
        self.appender.options = options

    @property
    def _active(self) -> ActiveSegment:
        return self.appender.active

    @property
    def _visible(self) -> Position:
        return self.appender.visible

    @property
    def _synced(self) -> Position:
        return self.appender.synced

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
    def ahead_us(self) -> int:
        """How far the last pointer is ahead of the clock, in microseconds."""
        return self.appender.pointers.gauges()["borrowed_us"]

    @property
    def synced_pointer(self) -> int:
        """The newest pointer that survives a loss of power."""
        return self._synced.pointer

    @property
    def failure(self) -> QuothError | None:
        """Why the log takes no more writes, None if it does."""
        return self.appender.write_failure.failure

    def info(self) -> LogInfo:
        """Tell everything about the log as it stands."""
        segments, issuer, findings = [*self._sealed, self._active], self.appender.pointers, self.findings
        return LogInfo(
            log_id=self.log_id,
            first=self._first_pointer(),
            last=self.newest,
            first_ordinal=self.first_ordinal,
            end_ordinal=self.end_ordinal,
            bytes=sum(one.size for one in segments),
            segments=len(segments),
            states="".join("r" if one.loaded else "h" for one in self._sealed) + "w",
            counters={"clock_steps": issuer.clock_steps, "rolls": self.appender.rolls, **findings.counters()},
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
        encoded = [encode_headers(one) for one in headers] if headers is not None else None
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
        return self.appender.append_batches(raws)

    def sync(self) -> None:
        """Make everything that was appended survive a loss of power. Raises `BrokerFailure`."""
        self.appender.sync()

    def begin_sync(self) -> SyncRequest:
        """An fsync for everything appended so far, to be run anywhere and handed to `finish_sync`.

        Raises `BrokerFailure` once one has failed: the next one would succeed and mean nothing.
        """
        return self.appender.begin_sync()

    def finish_sync(self, ticket: SyncRequest) -> None:
        """Take note of an fsync that returned."""
        self.appender.finish_sync(ticket)

    def fail(self, problem: OSError | QuothError) -> None:
        """Take no more writes: after a failed write or fsync nobody knows what the disk holds."""
        self.appender.write_failure.fail(problem)

    def roll(self) -> bool:
        """Seal the active segment and begin a new one. An empty one stays, and the answer is False."""
        if not self._active.records:
            return False
        self.appender.roll()
        return True

    @property
    def room(self) -> int:
        """So many bytes can be appended at least before the active segment has to be sealed."""
        return room_in(self.options, self._active)

    @property
    def is_publishing(self) -> bool:
        """Has everybody else to wait with what they append, for a transaction that is not synced yet?"""
        return self.appender.is_publishing

    def transactions(self) -> LogTransactions:
        """What is done with transactions. To be asked for once."""
        return LogTransactions(self.appender, self._opened.staged)

    # -- reading ----------------------------------------------------------------------------------------

    def lookup(
        self, after: int, records_max: int = UNLIMITED, bytes_max: int = DEFAULT_BYTES
    ) -> ReadRequest | None:
        """Where the first records above `after` lie; None if readers may not see any yet."""
        check_pointer(after)
        if after >= self._visible.pointer:
            return None
        if self._is_in_active(after):
            return ReadRequest(self._active, self._visible, after, after, records_max, bytes_max)
        one, following = self._sealed.holding(after)
        self._sealed.keep(one)
        beyond = min((following or self._active).floor - 1, POINTER_MAX)
        return ReadRequest(one, None, after, beyond, records_max, bytes_max)

    def survey(self, after: int) -> LogSurvey:
        """The log as readers may see it now, for questions about what lies above a pointer."""
        check_pointer(after)
        sealed = [] if self._is_in_active(after) else self._sealed
        return LogSurvey([*sealed, self._active.as_of(self._visible)], self._visible)

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

    def loss(self, after: int, ordinal: int, found: Extract) -> ReadLoss:
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
            if self.failure is None:
                self.sync()
                self._write_checkpoint()
        finally:
            self.discard()

    def discard(self) -> None:
        """Close and unlock without a word to the disk, as for a log that is being deleted."""
        self.rest()
        self._active.file.close()
        self._lock.release()

    # -- inside -----------------------------------------------------------------------------------------

    def _write_checkpoint(self) -> None:
        """Leave an index, unless a segment has still to be begun: the old index may prove what is lost."""
        if self._opened.successor is None:
            with suppress(OSError):  # it is derived: on a full disk the next opening takes longer
                self._active.write_checkpoint(self._producers.encode(self._clock.now()))

    def _is_in_active(self, after: int) -> bool:
        """Are all records above a pointer in the active segment?"""
        return not self._sealed or after + 1 >= self._active.floor

    def _drop(self, removable: Callable[[], int], due: Callable[[], bool]) -> tuple[int, int]:
        """Remove what may go. Then roll, for which a full disk may have had no room, and remove again."""
        records, size = self._remove(removable())
        if self._active.records and due() and not self.appender.is_placed:
            self.appender.roll()
            more = self._remove(removable())
            records, size = records + more[0], size + more[1]
        return records, size

    def _remove(self, count: int) -> tuple[int, int]:
        """Remove the oldest segments; whoever reads them keeps them until he is done."""
        if not count:
            return 0, 0
        before = self.first_ordinal
        self._first = None
        with durable_names(self.filesystem, self.directory):
            size = self._sealed.remove_oldest(count)
        return self.first_ordinal - before, size

    def _first_pointer(self) -> int:
        if self._first is None and self.first_ordinal < self.end_ordinal:
            firsts = (one.first() for one in (*self._sealed, self._active))
            self._first = next((first.base for first in firsts if first is not None), None)
        return self._first or 0
