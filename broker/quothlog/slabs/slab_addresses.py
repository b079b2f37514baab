"""Maps the addresses of slabs to the pointers of the log or topic that got their records, and back.

Records of slabs are stored in batches of one sparse producer, whose sequence is the address of the first
record of the batch + 1, and the records of a batch lie side by side in their slab. So a batch tells the
addresses of its records, and nothing has to be kept beside it.

    with Log.open("/var/lib/device/readings") as log:
        addresses = SlabAddresses(stored_in(log), import_producer(log.log_id))
        pointer = addresses.pointer_of(56)

    client = quoth.connect()
    addresses = SlabAddresses(lambda after: next(client.stored("readings", after=after), None), producer)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from xxhash import xxh3_64_intdigest

from quothlog.log import Log
from quothlog.slabs.slab_format import RECORD_HEADER_BYTES, check_address
from quothwire import batch
from quothwire.batch import Flag, Header, Stored
from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX, check_pointer


class AddressedBatch(Protocol):
    """A batch as it is stored."""

    @property
    def header(self) -> Header:
        """Its header."""

    @property
    def data(self) -> memoryview:
        """Header and body, which have been checked."""


FetchFirst = Callable[[int], AddressedBatch | None]
"""Returns the first stored batch with a record above a pointer, None if there is none."""


def import_producer(log_id: int) -> int:
    """Return the producer id under which `quoth log import` stores the records of slabs in a log."""
    return xxh3_64_intdigest(b"slabs", log_id) or 1


def stored_in(log: Log) -> FetchFirst:
    """Return a function that fetches batches of a log, for `SlabAddresses`."""

    def fetch(after: int) -> Stored | None:
        found = log.fetch(after, 1)
        if found is None:
            return None
        data = batch.split(found.data, log.log_id)[0]
        return Stored(batch.check(data, log.log_id), data)

    return fetch


def addresses_of(header: Header, data: memoryview) -> list[int]:
    """Return the addresses of the records of a batch, and behind them the address at which it ends."""
    values = batch.offsets_of(header, data[batch.HEADER_BYTES :])[0]
    return [header.sequence - 1 + RECORD_HEADER_BYTES * row + offset for row, offset in enumerate(values)]


class SlabAddresses:
    """The map between addresses and pointers. Not thread-safe.

    fetch: see `FetchFirst`. producer: the producer id of the forwarding or import that brought the records.
    """

    def __init__(self, fetch: FetchFirst, producer: int) -> None:
        self._fetch = fetch
        self._producer = producer

    def address_of(self, pointer: int) -> int:
        """Return the address that a record had in its slab. Raises `NotFound` ``unknown_record``.

        Reads one batch.
        """
        found = self._fetch(check_pointer(pointer) - 1) if pointer else None
        if found is None or not self._is_own(found.header) or not found.header.base <= pointer:
            raise error("unknown_record", f"no record of a slab has the pointer {pointer}")
        return addresses_of(found.header, found.data)[pointer - found.header.base]

    def pointer_of(self, address: int, *, after: int = 0, until: int = POINTER_MAX) -> int:
        """Return the pointer of the record that had an address. Raises `NotFound` ``unknown_record``.

        Bisects in up to 56 steps, fewer if it is known that the pointer lies above `after` and not above
        `until`. A step reads the producer's next batch and, one by one, those of other producers before it:
        where thousands of them lie in a row, it reads thousands, each in a round trip if a broker has them.
        """
        low, high = check_pointer(after), check_pointer(until)
        before: AddressedBatch | None = None
        check_address(address)
        while low < high:
            middle = (low + high) // 2
            found = self._own_behind(middle, high)
            if found is None or found.header.sequence > address + 1:
                high = middle
            else:
                before, low = found, found.header.last
        if before is None and (found := self._own_behind(low, until)) is not None:
            before = found
        if before is None:
            raise self._unknown(address)
        starts = addresses_of(before.header, before.data)[:-1]
        row = bisect_left(starts, address)
        if row == len(starts) or starts[row] != address:
            raise self._unknown(address)
        return before.header.base + row

    def _own_behind(self, pointer: int, until: int) -> AddressedBatch | None:
        """Return the producer's first batch that has a record above a pointer and begins up to another."""
        while (found := self._fetch(pointer)) is not None and found.header.base <= until:
            if self._is_own(found.header):
                return found
            pointer = found.header.last
        return None

    def _is_own(self, header: Header) -> bool:
        return header.producer == self._producer and bool(header.flags & Flag.SPARSE)

    def _unknown(self, address: int) -> QuothError:
        return error("unknown_record", f"no record of producer {self._producer} had the address {address}")
