"""An append-only log: the ordered segments of one directory, with one writer.

Not thread-safe: a log has one owner. Other threads may do two things: execute a `ReadRequest` of a sealed
segment, and execute a `SyncRequest`, which the owner then gives to `appender.finish_sync`.

    append    check, allocate pointers, one write            -> in the operating system: "written"
    sync      fsync of the active segment                    -> on the disk: "synced"
    visible   what readers may see: everything written, or with `synced_reads` everything synced, unless a
              read asks for one of the two; never a pointer more than 10 s above the newest synced one, so
              that a loss of power cannot make the log allocate a pointer that a reader has seen

`appender` is the end of the log, `reading/log_reads.py` has its reads. This module opens and trims it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from quothlog.appender import Appended, Appender
from quothlog.datadir.foreign import refuse_foreign
from quothlog.reading.log_reads import LogReads
from quothlog.recovery.recovery import Watch, open_directory
from quothlog.recovery.recovery_segment import RecoveryReport
from quothlog.retention import LogOptions, due_for_roll, expired, next_due, wholly_below
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.filesystem import Buffer, FileSystem, PosixFileSystem, durable_names
from quothlog.transactions.staging import STAGED_FILES_MAX
from quothlog.transactions.transactions import LogTransactions
from quothwire import batch
from quothwire.batch import Flag
from quothwire.closing import Closeable
from quothwire.errors import QuothError
from quothwire.headers import encode_headers
from quothwire.pointer import check_pointer
from quothwire.record import RecordBuffer
from quothwire.text.paths import given_path

_ORDINAL, _START = int(Flag.ORDINAL), int(Flag.START)


@dataclass(frozen=True)
class LogInfo:
    """A log at one moment. first, last: pointers, 0 if there is none; states: a letter a segment.

    counters: events since the log was opened, by name. gauges: amounts now, by name.
    """

    log_id: int
    first: int
    last: int
    first_ordinal: int
    end_ordinal: int
    bytes: int
    segments: int
    states: str
    counters: dict[str, int]
    gauges: dict[str, int]


class Log(LogReads, Closeable):
    """The log in a directory. Open it with `Log.open`; close it, or use it as a context manager.

    It is read by the calls of `LogReads`. appender: the end of the log, for callers that sync in another
    thread. findings: what the opening found.
    """

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
        self.log_id = self.appender.log_id
        self.findings: RecoveryReport = self._opened.findings
        self._sealed, self._producers = self._opened.sealed, self._opened.producers
        self._first: int | None = None
        self._removed_durably = True

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
        names of files that are not the log's and no unknown files either. watch: called with the progress.
        Raises `Conflict` ``locked``, `RequestError` ``bad_setting`` for an empty path or, without a log_id, a
        directory that holds something else, `Damaged`, `BrokerFailure` ``unusable_system``, or OSError.
        """
        path = given_path(directory, "directory")
        filesystem, clock = filesystem or PosixFileSystem(), clock or SystemClock()
        clock.boot_id()  # every file needs it: without it nothing is made or changed
        filesystem.make_directory(path)
        if not log_id:
            refuse_foreign(path, others)
        return cls(path, filesystem, clock, options or LogOptions(), log_id, others, watch)

    # -- state ------------------------------------------------------------------------------------------

    @property
    def options(self) -> LogOptions:
        """The limits by which the log rolls and removes segments; may be replaced at any time."""
        return self.appender.options

    @options.setter
    def options(self, options: LogOptions) -> None:
        self.appender.change(options)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that a loss of power may take."""
        return self.appender.active.end.offset - self.appender.synced.offset

    @property
    def unsynced_records(self) -> int:
        """Records that a loss of power may take."""
        return self.appender.active.end.ordinal - self.appender.synced.ordinal

    @property
    def ahead_us(self) -> int:
        """Microseconds by which the last pointer is ahead of the clock."""
        return self.appender.pointers.gauges()["pointer_ahead_us"]

    @property
    def synced_pointer(self) -> int:
        """The newest pointer that survives a loss of power."""
        return self.appender.synced.pointer

    @property
    def failure(self) -> QuothError | None:
        """The reason for which the log takes no more writes, None if it does."""
        return self.appender.write_failure.failure

    def info(self) -> LogInfo:
        """Describe the log as it is now."""
        active, pointers, findings = self.appender.active, self.appender.pointers, self.findings
        segments, rolls = [*self._sealed, active], self.appender.rolls
        return LogInfo(
            log_id=self.log_id,
            first=self._first_up_to(self.appender.visible),
            last=self.newest,
            first_ordinal=self.first_ordinal,
            end_ordinal=self.end_ordinal,
            bytes=sum(one.size for one in segments),
            segments=len(segments),
            states="".join("r" if one.kept_view else "h" for one in self._sealed) + "w",
            counters={"clock_steps": pointers.clock_steps, "rolls": rolls, **findings.counters()},
            gauges={
                **pointers.gauges(),
                "records_not_visible": active.end.ordinal - self.end_ordinal,
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

        The batch has the log as its producer and the ordinal as its sequence, so that it can be forwarded
        later without ever being stored twice.
        """
        values = [values] if isinstance(values, bytes) else values
        encoded = [encode_headers(one) for one in headers] if headers is not None else None
        return self._append(partial(batch.encode, values, keys, encoded))

    def append_buffer(self, records: RecordBuffer) -> Appended:
        """Append the records of a buffer as `append` does. The buffer stays as it is."""
        return self._append(records.encoded)

    def append_batches(self, raws: Sequence[Buffer]) -> list[Appended | QuothError]:
        """Append encoded batches with one write; returns the outcome of each."""
        return self.appender.append_batches(raws)

    def sync(self) -> None:
        """Make everything that was appended survive a loss of power. Raises `BrokerFailure`."""
        self.appender.sync()

    def roll(self) -> bool:
        """Seal the active segment and begin a new one. Returns False if it is empty and stays."""
        if not self.appender.active.records:
            return False
        self.appender.roll()
        return True

    def transactions(self, files_max: int = STAGED_FILES_MAX) -> LogTransactions:
        """Make the owner of the log's transactions. Call it once. files_max: of staged batches."""
        return LogTransactions(self.appender, self._opened.staged, files_max)

    # -- what is kept -----------------------------------------------------------------------------------

    def trim(self, before: int) -> tuple[int, int]:
        """Remove the segments that hold only pointers below `before`; returns (records, bytes) removed."""
        is_due = self.appender.active.end.pointer < check_pointer(before)
        return self._drop(lambda: wholly_below(before, self._sealed, self.appender.active), is_due)

    def retain(self, finished: int = 0) -> tuple[int, int]:
        """Apply the limits of age and size now, and remove segments up to `finished`; returns as `trim`."""
        active, moment = self.appender.active, (self._clock.now(), finished)
        is_due = bool(active.records) and due_for_roll(self.options, active, moment[0])
        return self._drop(lambda: expired(self.options, self._sealed, self.appender.active, *moment), is_due)

    def retention_due(self) -> int | None:
        """Return when `retain` will next have something to do, as a pointer; None if it never will."""
        return next_due(self.options, self._sealed, self.appender.active)

    def rest(self) -> None:
        """Close the sealed segments that are open for reading."""
        self._sealed.rest()

    def close(self) -> None:
        """Sync, write the checkpoint, close, unlock. A log that failed is only closed and unlocked."""
        if self._lock.released:
            return
        try:
            if self.failure is None:
                self.sync()
                if self._opened.successor is None:  # else the old index may prove a loss
                    with suppress(OSError):  # it is derived: without it the next opening takes longer
                        self.appender.active.write_checkpoint(self._producers.encode(self._clock.now()))
        finally:
            self.discard()

    def discard(self) -> None:
        """Close and unlock without writing anything, as for a log that is being deleted."""
        self.rest()
        self.appender.active.file.close()
        self._lock.release()

    # -- inside -----------------------------------------------------------------------------------------

    def _append(self, encoded: Callable[..., bytes]) -> Appended:
        """Append a batch that is encoded with the log as its producer."""
        sequence = self.appender.active.end.ordinal + 1
        flags = _flags(sequence, self._producers.following(self.log_id, _ORDINAL))
        raw = encoded(producer=self.log_id, sequence=sequence, flags=flags)
        outcome = _stored(*self.appender.append_batches([raw]))
        if outcome.last > self.appender.visible.pointer and not self.options.synced_reads:
            self.sync()  # above the horizon no reader could see it before
        return outcome

    def _drop(self, removable: Callable[[], int], is_due: bool) -> tuple[int, int]:
        """Remove what may go. Then roll, for which a full disk may have had no room, and remove again."""
        records, size = self._remove(removable())
        if is_due and self.appender.active.records and not self.appender.is_placed:
            self.appender.roll()
            more = self._remove(removable())
            records, size = records + more[0], size + more[1]
        return records, size

    def _remove(self, count: int) -> tuple[int, int]:
        """Remove the oldest segments, durably, with those of a removal that failed. Reads go on."""
        if not count and self._removed_durably:
            return 0, 0
        before = self.first_ordinal
        self._first, self._removed_durably = None, False
        with durable_names(self.filesystem, self.directory):
            size = self._sealed.remove_oldest(count)
        self._removed_durably = True
        return self.first_ordinal - before, size


def _flags(sequence: int, following: int) -> int:
    """Return the flags of the log's own batch, which counts records. following: the expected sequence."""
    return _ORDINAL if sequence == following else _ORDINAL | _START


def _stored(outcome: Appended | QuothError) -> Appended:
    """Return the outcome of an append, or raise it."""
    if isinstance(outcome, QuothError):
        raise outcome
    return outcome
