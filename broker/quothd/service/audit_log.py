"""Writes the audit records to a file of its own, in a thread of its own.

    audit.log       one JSON object a line, of mode 0600; audit.log.1 is the one before, up to audit.log.3

A disk that stalls or fails keeps no client waiting: records that cannot be written are counted, and the
number follows once the file can be written again. What one client does too often is left out before it takes
a place among those that wait.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections import deque
from pathlib import Path

from quothd.access.audit import LEFT_OUT, AuditRecord, AuditThrottle
from quothd.service.log_events import note
from quothlog.storage.clock import Clock

NAME = "audit.log"
FILE_BYTES_MAX = 16 * 2**20
FILES = 4
"""Files that are kept, with the one that is written."""
QUEUE_MAX = 10_000
"""Records that wait to be written."""
STOP_S = 2.0
BATCH_MAX = 1_000


class AuditLog:
    """The audit file of a broker. Any thread may call `write`."""

    def __init__(self, directory: Path, clock: Clock, *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self.path = directory / NAME
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        self._changed = threading.Condition()
        self._waiting: deque[AuditRecord] = deque()
        self._throttle = AuditThrottle()
        self._stops = False
        self._lost = 0
        self._descriptor = -1
        self._is_failed = False
        self._thread = threading.Thread(target=self._run, name="quoth-audit", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def write(self, record: AuditRecord) -> None:
        """Let a record be written; it is counted only if its client has many, or too many wait."""
        with self._changed:
            due = self._throttle.due()
            kept = self._throttle.take(record, self._clock.monotonic())
            for one in kept:
                if len(self._waiting) < QUEUE_MAX:
                    self._waiting.append(one)
                else:
                    self._lost += one.left_out or 1
            if kept or self._throttle.due() != due:
                self._changed.notify()

    def stop(self) -> None:
        """Write what waits, and end. A disk that stalls is not waited for."""
        if self._thread.ident is not None:
            with self._changed:
                self._stops = True
                self._changed.notify()
            self._thread.join(STOP_S)

    # -- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_over = False
        while not is_over:
            records, is_over = self._take()
            if records:
                self._append(records)
        self._close()

    def _take(self) -> tuple[list[AuditRecord], bool]:
        """Return records to write once there is one, or a number is due; and True for the last ones."""
        with self._changed:
            due = self._throttle.due()
            if not self._waiting and not self._stops:
                self._changed.wait(None if due is None else max(0.0, due - self._clock.monotonic()))
            taken = min(BATCH_MAX, len(self._waiting))
            records = [self._waiting.popleft() for _ in range(taken)]
            is_over = self._stops and not self._waiting
            return records + self._numbers(is_over=is_over, has_records=bool(records)), is_over

    def _numbers(self, *, is_over: bool, has_records: bool) -> list[AuditRecord]:
        """Return the records that stand for others, if they are due."""
        now, time, due = self._clock.monotonic(), self._clock.now(), self._throttle.due()
        numbers = []
        if due is not None and (now >= due or is_over):
            numbers += self._throttle.end_window(now, time)
        if self._lost and (has_records or numbers or is_over):
            numbers.append(AuditRecord(time, "audit", LEFT_OUT, left_out=self._lost))
            self._lost = 0
        return numbers

    def _append(self, records: list[AuditRecord]) -> None:
        """Write records. Logs the first failure of several, and counts the records that are lost."""
        try:
            data = "".join(record.line() for record in records).encode()
            self._open(len(data))
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as problem:
            self._fail(records, None, f"{self.path}: {problem.strerror}")
        except Exception as problem:
            self._fail(records, problem, str(self.path))
        else:
            self._is_failed = False

    def _fail(self, records: list[AuditRecord], unexpected: Exception | None, text: str) -> None:
        self._close()
        if not self._is_failed:
            note("audit_failed", unexpected, problem=text)
        self._is_failed = True
        with self._changed:
            self._lost += sum(record.left_out or 1 for record in records)

    def _open(self, size: int) -> None:
        """Open the file, or begin another one if this one has no room for so many bytes. Raises OSError."""
        if self._descriptor >= 0:
            held = os.fstat(self._descriptor).st_size
            if not held or held + size <= self._file_bytes_max:
                return
            self._close()
            self._rotate()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is no file")
        os.fchmod(self._descriptor, 0o600)
        if status.st_size and os.pread(self._descriptor, 1, status.st_size - 1) != b"\n":
            os.write(self._descriptor, b"\n")  # a crash, or a full disk, has left half a line

    def _rotate(self) -> None:
        for number in range(FILES - 1, 0, -1):
            before = f"{self.path}.{number - 1}" if number > 1 else self.path
            with contextlib.suppress(FileNotFoundError):
                os.replace(before, f"{self.path}.{number}")

    def _close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
