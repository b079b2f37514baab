"""A channel on the disk, without a broker: a queue between two threads or two processes, after kills, too.

    with Channel("jobs") as jobs:           any number of threads put, one thread gets
        jobs.put(b"a value")
        value = jobs.get(timeout=5)         as of queue.Queue
        jobs.done()                         all that was got is taken: it leaves the disk

    python channel.py threads jobs < lines  one thread puts lines, another one prints them
    python channel.py put jobs < lines      the same as two processes, which come and go as they like
    python channel.py get jobs

What was put and not taken is there the next time, in order. A value is on the disk when `flush` returns, or
`FLUSH_S` after `put`: a kill may take those of the last moment. A kill may also repeat the last values: those
that were not done, and those that were done within `SAVE_S` after others. It leaves none out in between.
"""

from __future__ import annotations

import math
import queue
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Lock, Thread

from quoth.filelock import FileLock
from quothlog import LogOptions, Reader, Writer
from quothlog.reading.forwarding_progress import read_mark, trim_unowned, write_mark
from quothwire.errors import error
from quothwire.record import Record

FLUSH_S = 0.05
SAVE_S = 0.1
LOOK_S = 0.1
"""Seconds after which a `get` that waits looks whether the channel has been closed."""


class Channel:
    """A first-in, first-out queue in a directory. file_bytes: of a file, which is removed as a whole."""

    def __init__(self, directory: str | Path, file_bytes: int = 4 * 2**20) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._options = LogOptions(size_limit=file_bytes, disk_free_min=2**20)
        self._closed = Event()
        self._opening = Lock()
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._mark = self.directory / "taken.forward"  # the writer removes what lies before this mark
        self._ready: deque[Record] = deque()
        self._got = self._done = self._saved = 0
        self._saved_at = -math.inf

    # -- the end that puts: it has the log's lock -------------------------------------------------------

    def put(self, value: bytes) -> None:
        """Put a value. Raises `QuothError`: ``locked`` if another process puts, ``closed``, ``disk_low``."""
        self._opened_writer().write(value)

    def flush(self) -> None:
        """Return once everything that was put survives a loss of power."""
        self._opened_writer().flush()

    def close(self) -> None:
        """Flush, and put nothing more: `get` returns what is left, then raises EOFError."""
        with self._opening:
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                self._closed.set()

    def _opened_writer(self) -> Writer:
        with self._opening:
            if self._writer is None:
                if self._closed.is_set():
                    raise error("closed", f"{self.directory} is closed")
                self._writer = Writer(self.directory, flush_seconds=FLUSH_S, options=self._options)
            return self._writer

    # -- the end that gets: it has the mark's lock ------------------------------------------------------

    def get(self, timeout: float | None = None) -> bytes:
        """Return the next value. Raises queue.Empty after `timeout` seconds, EOFError if none will come,
        `QuothError` ``locked`` if another process gets."""
        reader = self._reader or self._opened_reader()
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self._ready:
            is_closed = self._closed.is_set()  # before it reads: nothing is put after that
            left = max(0.0, until - time.monotonic())
            self._ready += reader.read(timeout=0.0 if is_closed else min(left, LOOK_S))
            if not self._ready:
                self._save()
                if is_closed:
                    raise EOFError(f"{self.directory} is closed, and everything was got")
                if not left:
                    raise queue.Empty
        record = self._ready.popleft()
        self._got = record.pointer
        return record.value

    def done(self) -> None:
        """Take every value that `get` has returned: none of them comes again."""
        self._done = self._got
        if time.monotonic() - self._saved_at >= SAVE_S:
            self._save()

    def __iter__(self) -> Iterator[bytes]:
        """Yield values until the channel is closed; each is done when the next one is asked for."""
        while True:
            try:
                value = self.get()
            except EOFError:
                return
            yield value
            self.done()

    def _opened_reader(self) -> Reader:
        self._lock = FileLock(self._mark)
        with self._lock.opening():
            mark = read_mark(self._mark)
            self._got = self._done = self._saved = mark["pointer"] if mark else 0
            self._reader = Reader(self.directory, self._got)
        return self._reader

    def _save(self) -> None:
        """Write the mark durably, and trim if no process puts: else that one does, with its next flush."""
        if self._done > self._saved:
            write_mark(self._mark, {"pointer": self._done, "trim": True})
            trim_unowned(self.directory)
            self._saved, self._saved_at = self._done, time.monotonic()

    # -- both -------------------------------------------------------------------------------------------

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        """Close both ends. No other thread may be in a call."""
        try:
            if self._reader is not None:
                self._save()
                self._reader.close()
                self._lock.release()
        finally:
            self.close()  # the writer removes what was taken


def put(directory: str) -> None:
    """Put every line of stdin."""
    with Channel(directory) as channel:
        for line in sys.stdin.buffer:
            channel.put(line.rstrip(b"\n"))


def get(directory: str) -> None:
    """Print every line that was not printed before, forever."""
    with Channel(directory) as channel:
        print_all(channel)


def threads(directory: str) -> None:
    """Put every line of stdin, and print it in another thread."""
    with Channel(directory) as channel:
        printer = Thread(target=print_all, args=(channel,))
        printer.start()
        try:
            for line in sys.stdin.buffer:
                channel.put(line.rstrip(b"\n"))
        finally:
            channel.close()
            printer.join()


def print_all(channel: Channel) -> None:
    """Print values until the channel is closed."""
    for value in channel:
        sys.stdout.buffer.write(value + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    {"put": put, "get": get, "threads": threads}[sys.argv[1]](sys.argv[2])
