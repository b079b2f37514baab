"""Reads the slabs of queuefka: records with their addresses, and gaps for what cannot be read.

    for found in SlabReader("/var/spool/topic"):
        if isinstance(found, SlabRecord):
            print(found.address, found.value)

It takes no lock and changes nothing, and may read beside a writer. The end of the last slab may be a record
that is being written, so the reader ends before it. A header whose record would reach beyond the slab is such
an end until so many bytes have come, 16 MiB at most, or the next slab begins, whatever follows the header: a
program that was killed within a record withholds what it writes behind it until then. Any other end is damage
as soon as a record that checks follows it, or the next slab begins. With ``finished`` the last slab is read
as any other.

    the checksum does not match,                 the gap is this record. It ends earlier where whole records
      and at its end there is a record that      lie side by side exactly up to that end: then this one is
      checks, or the end of a slab to which      torn, and another program has written on behind it
      nothing is added
    else, also for a length of 0, above          the gap ends at the next offset at which a record checks,
      `VALUE_BYTES_MAX` or beyond the slab       or at the end of the slab
    a slab begins above the end before it        the gap reaches to it
    a slab begins below the end before it        its bytes below that end are not read: their addresses are
                                                 taken. A gap without addresses reports it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quothlog.slabs.slab_format import (
    RECORD_HEADER_BYTES,
    VALUE_BYTES_MAX,
    SlabGap,
    SlabRecord,
    address_in,
    check_address,
    header_at,
    records_at_start,
    slab_name,
    xxh32,
)
from quothlog.slabs.slab_search import BLOCK_BYTES, BLOCK_BYTES_MAX, SlabSearch
from quothlog.storage.filesystem import (
    File,
    FileSystem,
    NotDurable,
    PosixFileSystem,
    refuse_strange,
    sync_directory,
    sync_file,
)
from quothwire.closing import Closeable
from quothwire.errors import QuothError, error
from quothwire.text.paths import given_path

_GROWTH_SHARE = 64
"""An end that is not whole is searched again once it has grown by this part of what is undecided there, or
has stopped growing: a search at every look would cost the square of a long one."""

NOTHING_FOLLOWS = "no record follows in this slab"
"""The text of a gap up to the end of a slab: damage, or in the last one a write that was not finished."""
_NO_RECORD = "no record, up to the next one that checks"
_START_HINT = "begin at the address of a record, or at that of a slab, which is its name"

SlabFound = SlabRecord | SlabGap


class _Slab(NamedTuple):
    """A slab as it was listed. begin: its first address that no slab before it has."""

    address: int
    size: int
    begin: int


class _Vain(NamedTuple):
    """A search that found nothing: behind which offset, the first undecided one, the slab's size then."""

    offset: int
    undecided: int
    size: int


class SlabReader(Closeable):
    """A cursor on a directory of slabs; iterating yields `SlabRecord` and `SlabGap`. Not thread-safe.

    address: that of what `take` returns next. unfinished: bytes behind it that are no whole record yet.
    """

    def __init__(
        self,
        directory: str | Path,
        address: int = 0,
        *,
        resume: bool = False,
        finished: bool = False,
        durable: bool = False,
        filesystem: FileSystem | None = None,
    ) -> None:
        """Begin at an address: that of a record, the end of the log, or one for which there is no slab.

        resume: the address is the `next` of a record or a gap that an earlier reader has returned. Reading
        begins there at once, although bytes that were added later may show a record around it. finished: no
        writer will add to the last slab. durable: sync each slab before its records are returned.

        Raises FileNotFoundError if there is no directory, another OSError if it cannot be listed,
        `RequestError` ``bad_request`` for an address beyond the end or, without `resume`, within a record,
        and `BrokerFailure` ``storage_failed`` if a slab cannot be read.
        """
        self.directory = given_path(directory, "directory")
        self.address = check_address(address)
        self.unfinished = 0
        self._finished = finished
        self._is_closed = False
        self._durable = durable
        self._filesystem = filesystem or PosixFileSystem()
        self._file: File | None = None
        self._search: SlabSearch | None = None
        self._slab = -1
        """The address of the slab that is read, or was read last."""
        self._begin = self._offset = 0
        self._room = BLOCK_BYTES_MAX
        """Bytes of the next read."""
        self._vain = _Vain(-1, 0, 0)
        self._looked_at = 0
        """The size of the slab at the last look behind that."""
        self._pending: list[SlabFound] = []
        self._sync_failure: QuothError | None = None
        self.list_slabs()
        self._seek(address, resume=resume)

    def __iter__(self) -> Iterator[SlabFound]:
        while found := self.take():
            yield from found

    @property
    def first(self) -> int:
        """The address of the first slab, 0 without slabs; as of the last listing."""
        return self._slabs[0].address if self._slabs else 0

    @property
    def last(self) -> int | None:
        """The address of the last slab, None without slabs; as of the last listing."""
        return self._slabs[-1].address if self._slabs else None

    @property
    def overlaps(self) -> bool:
        """True if the last slab begins below the end of one before it; as of the last listing."""
        return bool(self._slabs) and self._slabs[-1].begin > self._slabs[-1].address

    @property
    def end(self) -> int:
        """The address behind the last byte of all slabs, 0 without slabs; as of the last listing."""
        return max((one.address + one.size for one in self._slabs), default=0)

    def take(self) -> list[SlabFound]:
        """Return what follows, up to a megabyte of records or one longer one; nothing at the end.

        Raises `BrokerFailure` ``storage_failed``, after which the next call goes on, or ``closed``. After a
        sync that failed each call raises the same error: the system reports the loss of bytes only once, so
        another sync that succeeds would show nothing. Raises OSError, such as FileNotFoundError, if the
        directory cannot be listed.
        """
        if self._is_closed:
            raise error("closed", "the reader is closed", "")
        if self._sync_failure is not None:
            raise self._sync_failure
        found, self._pending = self._pending, []
        while not found:
            found = self._read()
            if not found and (self.unfinished or not self._open_next(found)):
                break
        if found:
            self.address = found[-1].next
        return found

    def list_slabs(self) -> None:
        """List the slabs anew.

        Raises OSError, such as FileNotFoundError, if the directory cannot be listed, and `BrokerFailure`
        ``storage_failed`` for a slab that is no file.
        """
        for name in self._filesystem.strange(self.directory):
            if address_in(name) is not None:
                refuse_strange(self._filesystem, self.directory / name)
        listed = self._filesystem.list(self.directory).items()
        slabs = [(address, size) for name, size in listed if (address := address_in(name)) is not None]
        self._slabs: list[_Slab] = []
        end = 0
        for address, size in sorted(slabs):
            self._slabs.append(_Slab(address, size, max(address, end)))
            end = max(end, address + size)

    def close(self) -> None:
        """Close the slab that is being read; nothing can be read any more."""
        self._file = self._search = None
        self._is_closed = True

    # -- the place to begin -----------------------------------------------------------------------------

    def _seek(self, wanted: int, *, resume: bool) -> None:
        """Open the slab that has the address, and walk to it from its first byte, unless it is resumed."""
        if wanted > self.end:
            text = f"address {wanted} is beyond the end of the log, {self.end}"
            raise error("bad_request", text, "it has lost records, or holds another log: begin at address 0")
        slab = next((one for one in reversed(self._slabs) if one.begin <= wanted), None)
        self._slab = wanted - 1  # so that the next one is above it
        if slab is None or wanted > slab.address + slab.size or not self._enter(slab, slab.begin):
            return  # there is no slab for it, which is a gap as any other
        at = slab.begin
        if resume and wanted > at:
            self._offset, at = wanted - slab.address, wanted
        while at < wanted:
            found = self._read()
            if not found:
                text = f"address {wanted} is within what is no whole record yet, from {at}"
                raise error("bad_request", text, _START_HINT)
            at = found[-1].next
            self._pending = [one for one in found if one.next > wanted]
        if self._pending and self._pending[0].address < wanted:
            self._pending[0] = self._clipped(self._pending[0], wanted)

    def _clipped(self, found: SlabFound, wanted: int) -> SlabGap:
        """Return the part of a gap from an address on. Raises ``bad_request`` for a record."""
        if isinstance(found, SlabGap):
            return found._replace(address=wanted)
        text = f"address {wanted} is within the record at {found.address}, which ends at {found.next}"
        raise error("bad_request", text, _START_HINT)

    def _enter(self, slab: _Slab, begin: int) -> bool:
        """Open a slab, of which the bytes below an address are not read; False if it has been removed."""
        with self._reporting(slab.address):
            try:
                file = self._filesystem.open(self.directory / slab_name(slab.address))
            except FileNotFoundError:
                self._slabs.remove(slab)
                return False
            if self._durable:
                self._sync(slab.address, partial(sync_directory, self._filesystem, self.directory))
        self._file, self._search = file, SlabSearch(file)
        self._slab, self._begin, self._offset = slab.address, begin, 0
        self._vain = _Vain(-1, 0, 0)
        return True

    def _open_next(self, found: list[SlabFound]) -> bool:
        """Open the next slab, and add the gap before it; False if there is none."""
        slab = self._following()
        if slab is not None and self.address < slab.address:  # slabs that were made during a listing may
            self.list_slabs()  # be missing in it, while it has later ones
            slab = self._following()
        if slab is None:
            return False
        begin = max(self.address, slab.address)
        if not self._enter(slab, begin):
            return True
        name = slab_name(slab.address)
        if self.address < slab.address:
            found.append(SlabGap(self.address, begin, "missing", f"there is no slab before {name}"))
        elif begin > slab.address and slab.size:
            text = f"{name} begins {begin - slab.address} bytes before the end of the slab before it"
            found.append(SlabGap(begin, begin, "damaged", text))
        return True

    def _following(self) -> _Slab | None:
        """Return the slab behind the one that was read last, None if there is none."""
        row = bisect_right(self._slabs, self._slab, key=_address_of)
        return self._slabs[row] if row < len(self._slabs) else None

    # -- within a slab ----------------------------------------------------------------------------------

    def _read(self) -> list[SlabFound]:
        """Read on in the open slab; nothing at its end, and before what is not finished."""
        self.unfinished = 0
        if self._file is None or self._search is None:
            return []
        is_open = not self._finished and self._slab >= (self.last or 0)
        with self._reporting(self._slab):
            while (size := self._file.size()) > self._offset:
                found = self._read_up_to(size, self._file, self._search, is_open=is_open)
                if not found:
                    self.unfinished = max(0, self._slab + size - max(self._begin, self._slab + self._offset))
                    return []
                if self._durable:
                    self._sync(self._slab, partial(sync_file, self._file))
                self._offset = found[-1].next - self._slab
                kept = [one for one in found if one.next > self._begin]
                if kept and kept[0].address < self._begin:
                    text = "a record that begins below the end of the slab before"
                    kept[0] = SlabGap(self._begin, kept[0].next, "damaged", text)
                if kept:
                    return kept
        return []

    def _read_up_to(self, size: int, file: File, search: SlabSearch, *, is_open: bool) -> list[SlabFound]:
        """Read records, or else a long one or the gap; nothing if that cannot be decided yet."""
        offset = self._offset
        data = file.read(min(size - offset, self._room), offset)
        self._room = min(2 * self._room, BLOCK_BYTES_MAX)
        if records := records_at_start(data, self._slab + offset):
            return [*records]
        length = 0
        if len(data) >= RECORD_HEADER_BYTES:
            length, check = header_at(data)
            end = offset + RECORD_HEADER_BYTES + length
            if 0 < length <= VALUE_BYTES_MAX and end > size and is_open:
                return []
            if len(data) < end - offset and length <= VALUE_BYTES_MAX and end <= size:
                value = file.read(length, offset + RECORD_HEADER_BYTES)
                if xxh32(value) == check:
                    return [SlabRecord(self._slab + offset, value)]
        elif is_open:
            return []
        self._room = BLOCK_BYTES
        found, text = self._behind_damage(length, size, search, is_open=is_open)
        gap = SlabGap(self._slab + offset, self._slab + found, "damaged", text)
        return [gap] if found > offset else []

    def _behind_damage(self, length: int, size: int, search: SlabSearch, *, is_open: bool) -> tuple[int, str]:
        """Return the offset at which the slab goes on and the finding; the same offset if it is not known."""
        offset = self._offset
        end = offset + RECORD_HEADER_BYTES + length
        if length and end <= size and (search.is_record(end, size) or (end == size and not is_open)):
            chain = search.chain_to(offset + 1, end)
            return (end, "the checksum of a record does not match") if chain is None else (chain, _NO_RECORD)
        begin = offset + 1
        if self._vain.offset == offset:
            begin = max(begin, self._vain.undecided)
            if is_open and not self._is_worth_it(size, size - begin):
                return offset, ""
        found = search.next_record(begin, size)
        if found is None:
            self._vain, self._looked_at = _Vain(offset, search.undecided, size), size
            return (offset, "") if is_open else (size, NOTHING_FOLLOWS)
        return found, _NO_RECORD

    def _is_worth_it(self, size: int, undecided: int) -> bool:
        """Return True if an end that is not whole should be searched again: see `_GROWTH_SHARE`."""
        grown = size - self._vain.size
        is_quiet, self._looked_at = size == self._looked_at, size
        return grown > 0 and (is_quiet or grown * _GROWTH_SHARE >= undecided)

    def _sync(self, slab: int, sync: Callable[[], None]) -> None:
        """Sync a slab or its directory. Raises OSError; after `NotDurable` every call of `take` fails."""
        try:
            sync()
        except NotDurable as problem:
            text = f"{self.directory / slab_name(slab)}: {problem.strerror}"
            hint = "its last records may be lost although they can be read: check the disk, then read on"
            self._sync_failure = error("storage_failed", text, hint)
            raise self._sync_failure from problem

    @contextmanager
    def _reporting(self, slab: int) -> Iterator[None]:
        """Raise ``storage_failed`` where the system refuses something."""
        try:
            yield
        except OSError as problem:
            text = f"{self.directory / slab_name(slab)}: {problem.strerror}"
            raise error(
                "storage_failed", text, "nothing was changed; read on from the same address"
            ) from problem


def _address_of(slab: _Slab) -> int:
    return slab.address
