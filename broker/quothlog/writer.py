"""Writes records one by one, for devices that lose power: gathered, and on the disk within a known time.

    with Writer("/var/lib/device/readings", flush_records=100, flush_seconds=1.0) as writer:
        writer.write(b"21.5")

A record is safe once `flush` has returned, which happens by itself after so many records or so many seconds.
A thread, the only one of this package, flushes in time while the program does something else.

Where a call of the buffer is atomic, `write` takes no lock, unless the record is the first one of a batch or
makes it complete. A flush seals the buffer under the lock, and a record that comes then waits for the next.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import TIMEOUT_MAX, Condition, RLock, Thread

from quothlog.appender import AHEAD_US
from quothlog.log import Log
from quothlog.reading import forwarding_progress
from quothlog.reading.directory_watch import DirectoryWatch
from quothlog.retention import LogOptions
from quothlog.storage.clock import Clock, SystemClock
from quothwire import batch
from quothwire.closing import Closeable
from quothwire.errors import Conflict, QuothError, Unavailable, error
from quothwire.record import BUFFER_BYTES_MAX, RecordBuffer
from quothwire.text.paths import given_path

FLUSH_RECORDS, FLUSH_SECONDS = 1_000, 1.0
BATCH_BYTES = 2**20
"""A batch is flushed when it holds this much, whatever its number of records. Those that wait for room on a
full disk become one batch of up to `BUFFER_BYTES_MAX`; what does not fit is refused."""
DISK_FREE_MIN = 2**20
"""What is left free on the disk, unless the options say otherwise: to remove records takes a new segment."""
OWNER_S, OWNER_PAUSE_S = 1.0, 0.01
"""A forwarder owns the log for a moment to remove forwarded segments: so long a new writer waits for it."""

log = logging.getLogger("quothlog")


class Writer(Closeable):
    """A log with one writer, any number of whose threads may call it. Close it, or use it in a `with` block.

    log: the log that it writes, for `log.info()`, `log.trim(...)` and the like, while no other thread calls
    the writer. problem: the reason for which the last flush has failed, None if it has not.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        flush_records: int = FLUSH_RECORDS,
        flush_seconds: float = FLUSH_SECONDS,
        options: LogOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the log in a directory, or begin one; see `LogOptions` for what it keeps.

        flush_records, flush_seconds: a record is on the disk when so many have come or so much time has
        passed. Raises as `Log.open` does, and `RequestError` ``bad_setting``.
        """
        if not 1 <= flush_records <= batch.BATCH_RECORDS_MAX or not flush_seconds > 0:
            what = f"flush_records={flush_records}, flush_seconds={flush_seconds}"
            raise error("bad_setting", what, f"1 to {batch.BATCH_RECORDS_MAX} records, more than 0 s")
        self.problem: QuothError | None = None
        self._flush_records = flush_records
        self._flush_seconds = flush_seconds
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._clock = clock or SystemClock()
        self._closed = False
        self._begin()
        self._is_idle = False
        """The thread waits for the first record of a batch; else it wakes up in time by itself."""
        self._released = 0
        self._names = DirectoryWatch(given_path(directory, "directory"), self._clock)
        self.log = _open(directory, options or LogOptions(disk_free_min=DISK_FREE_MIN), self._clock)
        self._thread = Thread(target=self._keep_time, name=f"quothlog-{self.log.directory.name}", daemon=True)
        self._thread.start()

    def write(
        self, value: bytes, *, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """Take a record; it is on the disk within `flush_seconds`, or when `flush` returns.

        Raises `RequestError` ``bad_request`` or ``too_large`` if the record was not taken, `Unavailable`
        ``disk_low`` if the disk has been full for as many records as can wait, and `BrokerFailure`
        ``storage_failed`` if the disk failed: then nothing more can be written until the log is opened anew.
        """
        count = self._add(value, key, headers)
        if not 0 < count < self._enough:
            self._attend(value, key, headers, taken=bool(count))

    def flush(self) -> int:
        """Return the newest pointer once everything that was written before survives a loss of power.

        Raises as `write` does; records that could not be written yet wait for the next time.
        """
        with self._lock:
            self._check_open()
            self._flush()
            return self.log.newest

    def close(self) -> None:
        """Flush, close the log, unlock its directory. Does nothing the second time.

        Raises as `flush` does, and then what was not written is lost.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._buffer.seal()
            self._changed.notify_all()
        self._thread.join()
        try:
            self._flush()
        finally:
            self.log.close()

    # -- inside, under the lock -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a batch. Its limit comes before it: a record that is added to it is compared with that."""
        self._enough = 1
        """The number of records from which on one more has to be attended to."""
        self._due = math.inf
        self._buffer = RecordBuffer(BATCH_BYTES, BUFFER_BYTES_MAX)
        if self._closed:
            self._buffer.seal()
        self._add: Callable[[bytes, bytes | None, Mapping[str, bytes] | None], int]
        self._add = self._buffer.append if RecordBuffer.is_atomic else self._add_locked

    def _add_locked(self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> int:
        with self._lock:
            return self._buffer.append(value, key, headers)

    def _attend(
        self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None, *, taken: bool
    ) -> None:
        """Take a record for which there was no room, flush enough of them, and the others in time."""
        with self._lock:
            if not taken:
                self._check_open()
                while not self._buffer.append(value, key, headers):
                    if self.problem is None:
                        self._try_to_flush()
                    else:
                        self._flush()
            if self._due == math.inf and len(self._buffer):
                self._due = self._clock.monotonic() + self._flush_seconds
                self._enough = self._flush_records
                if self._is_idle:
                    self._changed.notify()
            if len(self._buffer) >= self._flush_records and self.problem is None:
                self._try_to_flush()

    def _check_open(self) -> None:
        if self._closed:
            raise error("closed", "the writer is closed", "")
        if self.log.failure is not None:
            raise self.log.failure

    def _try_to_flush(self) -> None:
        """Flush; what there is no room for now can wait."""
        try:
            self._flush()
        except QuothError as problem:
            if not problem.retryable:
                raise
            log.warning("%s: records wait: %s", self.log.directory, problem)

    def _flush(self) -> None:
        try:
            if len(self._buffer):
                self._buffer.seal()
                self._append()
                self._begin()
            self.log.sync()
            self._release()
        except QuothError as problem:
            self.problem = problem
            self._buffer.bytes_max = BUFFER_BYTES_MAX
            raise
        finally:
            if not self._closed and self.log.failure is None:
                self._buffer.unseal()
        self.problem = None

    def _append(self) -> None:
        """Write all records as one batch; what has been forwarded makes room for them."""
        try:
            self.log.append_buffer(self._buffer)
        except Unavailable:
            self._names.forget()  # on a full disk a mark is written over, and no name changes
            if not self._release():
                raise
            self.log.append_buffer(self._buffer)

    def _release(self) -> bool:
        """Remove what has been forwarded, see `forwarding_progress`. Returns False if there was nothing."""
        try:
            if not self._names.may_differ():
                return False
            pointer = forwarding_progress.released(self.log.directory)
            if pointer <= self._released:
                return False
            self.log.trim(pointer + 1)
            self._released = pointer
        except (OSError, QuothError) as problem:
            self._names.forget()
            log.warning("%s: not removed yet: %s", self.log.directory, problem)
        return True

    # -- the thread -------------------------------------------------------------------------------------

    def _keep_time(self) -> None:
        """Flush what was not flushed in time, until the writer is closed or its log has failed."""
        with self._changed:
            while not self._closed and self.log.failure is None:
                now = self._clock.monotonic()
                if len(self._buffer) and now >= self._due:
                    self._due = now + self._flush_seconds
                    with suppress(QuothError):  # the next write raises it
                        self._try_to_flush()
                self._is_idle = self._due == math.inf
                self._changed.wait(min(self._due - now, TIMEOUT_MAX))


def _open(directory: str | Path, options: LogOptions, clock: Clock) -> Log:
    """Open the log; wait for one that is owned for a moment only."""
    until = clock.monotonic() + OWNER_S
    while True:
        try:
            return _with_warnings(Log.open(directory, options=options, clock=clock))
        except Conflict:
            if clock.monotonic() > until:
                raise
            clock.sleep(OWNER_PAUSE_S)


def _with_warnings(opened: Log) -> Log:
    """Log a warning for each finding of the opening that needs a person's attention."""
    ahead, found = opened.ahead_us, opened.findings
    if ahead > AHEAD_US:
        log.warning("%s: pointers run %d s ahead of the clock", opened.directory, ahead // 1_000_000)
    if found.lost_records:
        log.error("%s: %d synced records are lost", opened.directory, found.lost_records)
    for name in found.false_segments:
        log.warning("%s: no segment of this log, kept as %s", opened.directory, name)
    return opened
