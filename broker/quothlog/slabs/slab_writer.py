"""Writes the slabs of queuefka, byte for byte as queuefka does.

    with SlabWriter("/var/spool/topic") as writer:
        address = writer.write(b"21.5")
        writer.sync()

Differences: one process writes a directory, `sync` exists, and whatever a crash left at the end of the last
slab stays as it is: the writer goes on in a new slab behind it, and readers report the gap.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from quothlog.slabs.slab_format import ADDRESS_MAX, encode_record, slab_name
from quothlog.slabs.slab_reader import SlabReader
from quothlog.storage.dirlock import BareDirectoryLock
from quothlog.storage.filesystem import (
    File,
    FileSystem,
    PosixFileSystem,
    durable_names,
    is_systems,
    names_in,
    sync_directory,
    sync_file,
)
from quothlog.storage.write_failure import WriteFailure
from quothwire.closing import Closeable
from quothwire.errors import QuothError, Unavailable, error, shown
from quothwire.text.paths import given_path

SLAB_BYTES = 64 * 2**20
BUFFER_BYTES = 2**16
"""Bytes of records that are held in memory until they are written."""


class _Tail(NamedTuple):
    """The slab that is written, from which every address follows. It is replaced as a whole, or its buffer
    grows: so an interrupt, such as Ctrl-C, finds one state or the next.

    begin: the offset in the slab of the first byte of the buffer, whose first part may be stored already.
    full_at: the slab ends once an address lies above this one.
    """

    slab: int
    file: File
    begin: int
    buffer: bytearray
    full_at: int

    @property
    def address(self) -> int:
        """The address behind the buffer."""
        return self.slab + self.begin + len(self.buffer)


class SlabWriter(Closeable):
    """The one writer of a directory of slabs. Not thread-safe. Close it, or use it in a `with` block."""

    def __init__(
        self, directory: str | Path, slab_bytes: int = SLAB_BYTES, *, filesystem: FileSystem | None = None
    ) -> None:
        """Begin a directory, made if need be, or continue behind its last slab.

        slab_bytes: a slab ends behind the first record that makes it larger. Raises `Conflict` ``locked``,
        `RequestError` ``bad_setting``, also for a directory that holds something else, `Unavailable`
        ``disk_low``, `BrokerFailure` ``storage_failed``, or OSError if it cannot be made or opened.
        """
        if type(slab_bytes) is not int or slab_bytes < 1:
            raise error("bad_setting", f"slabs of {slab_bytes} bytes", "1 byte or more")
        self.directory = given_path(directory, "directory")
        self._slab_bytes = slab_bytes
        self._filesystem = filesystem or PosixFileSystem()
        self._failure = WriteFailure(self._filesystem, self.directory)
        self._is_closed = False
        self._filesystem.make_directory(self.directory)
        self._lock = BareDirectoryLock(self.directory)
        try:
            self._tail = self._opened()
        except BaseException:
            self._lock.release()
            raise

    @property
    def address(self) -> int:
        """The address of the next record."""
        return self._tail.address

    @property
    def failure(self) -> QuothError | None:
        """The error after which nothing can be written until the directory is opened again, or None."""
        return self._failure.failure

    def write(self, value: bytes) -> int:
        """Take a value and return its address. It is in the system after `flush`, on the disk after `sync`.

        Raises `RequestError`: ``bad_request`` for an empty value, ``too_large``; `Unavailable` ``disk_low``,
        and nothing was taken; `BrokerFailure` ``storage_failed``, and the next opening shows what was stored.
        If it is interrupted, by Ctrl-C for instance, the value was taken if `address` has risen.
        """
        record = encode_record(value)
        self._check_open()
        if self._is_roll_due or len(self._tail.buffer) + len(record) > BUFFER_BYTES:
            self.flush()
        address = self.address
        if address + len(record) > ADDRESS_MAX:
            raise error("pointers_exhausted", f"no address is left behind {address}", "begin a new directory")
        self._tail.buffer.extend(record)
        if self._is_roll_due:
            with suppress(Unavailable):  # the record is taken, and the next call tries again
                self.flush()
        return address

    def flush(self) -> None:
        """Write everything to the system, where readers find it. Raises as `write` does; may be repeated."""
        self._check_open()
        try:
            self._write_buffer()
            if self._is_roll_due:
                sync_file(self._tail.file)
                self._tail = self._new_slab(self.address)
        except (OSError, QuothError) as problem:
            raise self._failure.as_error(problem, len(self._tail.buffer)) from problem

    def sync(self) -> None:
        """Return once everything that was written survives a loss of power. Raises as `write` does."""
        self.flush()
        try:
            sync_file(self._tail.file)
            sync_directory(self._filesystem, self.directory)
        except OSError as problem:
            raise self._failure.fail(problem) from problem

    def close(self) -> None:
        """Flush, close, unlock. Does nothing the second time. Raises as `write` does."""
        if self._is_closed:
            return
        try:
            if self.failure is None:
                self.flush()
        finally:
            self._is_closed = True
            self._tail.file.close()
            self._lock.release()

    # -- inside -----------------------------------------------------------------------------------------

    @property
    def _is_roll_due(self) -> bool:
        return self.address > self._tail.full_at

    def _opened(self) -> _Tail:
        """Open the last slab; begin one behind it if it does not end with a whole record.

        Of a slab that begins below the end of one before it nothing shows where its records begin.
        """
        try:
            with SlabReader(self.directory, filesystem=self._filesystem) as reader:
                last, end, overlaps = reader.last, reader.end, reader.overlaps
            if last is None:
                self._check_empty()
                return self._new_slab(0)
            file = self._filesystem.open(self.directory / slab_name(last), append=True)
            if overlaps or last + file.size() != end or self._is_torn(last):
                return self._new_slab(end)
            return _Tail(last, file, end - last, bytearray(), max(end, last + self._slab_bytes))
        except OSError as problem:
            raise self._failure.as_error(problem, 0) from problem

    def _check_empty(self) -> None:
        """Raise ``bad_setting`` if a directory without slabs holds something else, such as a log of Quoth."""
        others = [name for name in names_in(self.directory) if not is_systems(name)]
        if others:
            text = f"{self.directory} is no directory of slabs: it holds {shown(min(others))}"
            raise error("bad_setting", text, "give an empty or a new directory")

    def _is_torn(self, slab: int) -> bool:
        """Return True if the last slab does not end with a whole record."""
        with SlabReader(self.directory, slab, filesystem=self._filesystem) as reader:
            while reader.take():
                pass
        return bool(reader.unfinished)

    def _new_slab(self, address: int) -> _Tail:
        """Make an empty slab, whose name survives a loss of power.

        Raises OSError, or `Conflict` ``locked`` for one that is there: then another program writes here.
        """
        path = self.directory / slab_name(address)
        with suppress(FileNotFoundError):
            if self._filesystem.open(path).size():
                raise error("locked", f"another program writes to {self.directory}: {path.name} is there")
        with durable_names(self._filesystem, self.directory):
            file = self._filesystem.create(path)
        return _Tail(address, file, 0, bytearray(), address + self._slab_bytes)

    def _write_buffer(self) -> None:
        """Write the buffer. What a failed or interrupted write has stored of it is not written again.

        The size of the file alone shows that, so an interrupt behind the write changes nothing.
        """
        tail = self._tail
        stored = tail.file.size() - tail.begin
        if not 0 <= stored <= len(tail.buffer):
            raise error("storage_failed", f"another program writes to {slab_name(tail.slab)}")
        if stored < len(tail.buffer):
            tail.file.append([tail.buffer[stored:] if stored else tail.buffer])
        if tail.buffer:
            self._tail = tail._replace(begin=tail.begin + len(tail.buffer), buffer=bytearray())

    def _check_open(self) -> None:
        if self._is_closed:
            raise error("closed", "the writer is closed", "")
        if self.failure is not None:
            raise self.failure
