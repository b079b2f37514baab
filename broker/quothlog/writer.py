"""Writes records one by one, for devices that lose power: gathered, and on the disk within a known time.

    with Writer("/var/lib/device/readings", flush_records=100, flush_seconds=1.0) as writer:
        writer.write(b"21.5")

A record is safe once `flush` has returned, which happens by itself after so many records or so many seconds.
A thread, the only one of this package, flushes in time while the program does something else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import TIMEOUT_MAX, Condition, Thread

from quothlog.appender import AHEAD_US
from quothlog.log import Log
from quothlog.reading import forwarding_progress
from quothlog.reading.tailer import DirectoryWatch
from quothlog.retention import LogOptions
from quothlog.storage.clock import Clock, SystemClock
from quothwire import batch
from quothwire.closing import Closeable
from quothwire.errors import Conflict, QuothError, Unavailable, error
from quothwire.headers import encode_headers
from quothwire.text.paths import given_path

FLUSH_RECORDS, FLUSH_SECONDS = 1_000, 1.0
BUFFER_BYTES_MAX = batch.BATCH_BYTES_MAX - 1_024
"""Bytes of the records that wait for room on a full disk, in one batch; what does not fit is refused."""
BATCH_BYTES = 2**20
"""A batch is flushed when it holds this much, whatever its number of records."""
RECORD_BYTES = 16
"""What a record takes beside its bytes, about."""
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
        self._changed = Condition()
        self._clock = clock or SystemClock()
        self._begin()
        self._released = 0
        self._names = DirectoryWatch(given_path(directory, "directory"), self._clock)
        self._closed = False
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
        if not isinstance(value, bytes) or not (key is None or isinstance(key, bytes)):
            raise error("bad_request", "values and keys are bytes", "encode them")
        encoded = encode_headers(headers or {})
        size = len(value) + len(key or b"") + len(encoded) + RECORD_BYTES
        if size > BUFFER_BYTES_MAX:
            raise error("too_large", f"a record of {size} bytes, at most {BUFFER_BYTES_MAX}")
        with self._changed:
            self._check_open()
            if self._values and self._size + size > BATCH_BYTES and self.problem is None:
                self._try_to_flush()
            if self._size + size > BUFFER_BYTES_MAX or len(self._values) >= batch.BATCH_RECORDS_MAX:
                self._flush()
            if not self._values:
                self._due = self._clock.monotonic() + self._flush_seconds
                self._changed.notify()
            self._values.append(value)
            self._keys.append(key)
            self._headers.append(dict(headers or {}))  # the caller's own may change before it is written
            self._size += size
            if len(self._values) >= self._flush_records and self.problem is None:
                self._try_to_flush()

    def flush(self) -> int:
        """Return the newest pointer once everything that was written before survives a loss of power.

        Raises as `write` does; records that could not be written yet wait for the next time.
        """
        with self._changed:
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
            self._changed.notify_all()
        self._thread.join()
        try:
            self._flush()
        finally:
            self.log.close()

    # -- inside, under the lock -------------------------------------------------------------------------

    def _begin(self) -> None:
        self._values: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._headers: list[Mapping[str, bytes]] = []
        self._size = 0
        self._due = 0.0

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
            if self._values:
                self._append()
                self._begin()
            self.log.sync()
            self._release()
        except QuothError as problem:
            self.problem = problem
            raise
        self.problem = None

    def _append(self) -> None:
        """Write all records as one batch; what has been forwarded makes room for them."""
        keys = self._keys if any(key is not None for key in self._keys) else None
        headers = self._headers if any(self._headers) else None
        try:
            self.log.append(self._values, keys=keys, headers=headers)
        except Unavailable:
            self._names.forget()  # on a full disk a mark is written over, and no name changes
            if not self._release():
                raise
            self.log.append(self._values, keys=keys, headers=headers)

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
                if self._values and now >= self._due:
                    self._due = now + self._flush_seconds
                    with suppress(QuothError):  # the next write raises it
                        self._try_to_flush()
                self._changed.wait(min(self._due - now, TIMEOUT_MAX) if self._values else None)


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
