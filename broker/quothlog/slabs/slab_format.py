"""The bytes of queuefka's slabs: a log whose addresses are byte offsets.

A log is a directory of slabs. A slab is a file of records without a byte between them, named by the address
of its first byte in 20 digits. All integers are little-endian.

    00000000000000000000.slab         the first slab; of 56 bytes, so that the next one is
    00000000000000000056.slab         this; the last one may be empty: the log ends there

    record
    0   n: bytes of the value             4
    4   xxh32 of the value, seed 0        4       the length is not covered
    8   value                             n       never empty

The address of a record is that of its slab plus the offset of its first byte, so the next record of a slab
has the address + 8 + n. A slab that is missing leaves a gap between the end of the one before and the name of
the next. There is no magic number, so nothing but checksums shows where a record begins behind damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Literal, NamedTuple

from xxhash import xxh32_intdigest

from quothwire.errors import error, shown
from quothwire.record import BUFFER_BYTES_MAX, RECORD_BYTES

SLAB_SUFFIX = ".slab"
RECORD_HEADER_BYTES = 8
VALUE_BYTES_MAX = BUFFER_BYTES_MAX - RECORD_BYTES
"""Bytes of the largest value that a batch can hold, a few less than 16 MiB. The format would allow 4 GiB."""
ADDRESS_MAX = 2**63 - 1

_NAME = re.compile(r"([0-9]{20})\.slab")
_HEADER = Struct("<II")


class SlabRecord(NamedTuple):
    """A value and its address."""

    address: int
    value: bytes

    @property
    def next(self) -> int:
        """The address behind it."""
        return self.address + RECORD_HEADER_BYTES + len(self.value)


class SlabGap(NamedTuple):
    """Bytes from `address` on and before `next` that hold no readable record.

    reason: ``missing``, so there is no slab for them, or ``damaged``. text: the finding, for people. Both
    addresses are equal where a slab begins below the end of the one before it: no address is missing then,
    but some bytes of that slab are not read.
    """

    address: int
    next: int
    reason: Literal["missing", "damaged"]
    text: str


def xxh32(value: bytes | bytearray | memoryview) -> int:
    """Return the checksum of a value, as its record has it: XXH32 with the seed 0."""
    return xxh32_intdigest(value)


def slab_name(address: int) -> str:
    """Return the name of the slab that begins at an address."""
    return f"{address:020d}{SLAB_SUFFIX}"


def address_in(name: str) -> int | None:
    """Return the address in the name of a slab, None for another name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= ADDRESS_MAX else None


def holds_slabs(names: Iterable[str]) -> bool:
    """Return True if one of the names in a directory is that of a slab."""
    return any(address_in(name) is not None for name in names)


def encode_record(value: bytes) -> bytes:
    """Encode a record. Raises `RequestError`: ``bad_request`` for an empty value, ``too_large``."""
    if not isinstance(value, bytes):
        raise error("bad_request", f"a value is bytes, not {type(value).__name__}", "encode it")
    if not value:
        raise error("bad_request", "a slab holds no empty value", "leave it out")
    if len(value) > VALUE_BYTES_MAX:
        raise error("too_large", f"a value of {len(value)} bytes, at most {VALUE_BYTES_MAX}")
    return _HEADER.pack(len(value), xxh32_intdigest(value)) + value


def header_at(data: bytes | memoryview, offset: int = 0) -> tuple[int, int]:
    """Return the length and the checksum that `RECORD_HEADER_BYTES` at an offset say."""
    length, check = _HEADER.unpack_from(data, offset)
    return length, check


def records_at_start(data: bytes, address: int) -> list[SlabRecord]:
    """Decode the records at the beginning of some bytes, up to the first that is not whole.

    address: that of the first byte.
    """
    found: list[SlabRecord] = []
    begin, last = 0, len(data) - RECORD_HEADER_BYTES
    unpack, check_of = _HEADER.unpack_from, xxh32_intdigest
    while begin < last:
        length, check = unpack(data, begin)
        end = begin + RECORD_HEADER_BYTES + length
        value = data[begin + RECORD_HEADER_BYTES : end]
        if not 0 < length <= VALUE_BYTES_MAX or end > len(data) or check_of(value) != check:
            break
        found.append(SlabRecord(address + begin, value))
        begin = end
    return found


def candidates_in(data: bytes) -> Iterator[int]:
    """Yield the offsets at which a header of 1 to `VALUE_BYTES_MAX` bytes can begin, in order.

    Such a length has a highest byte of zero and another one that is not, so this searches for zeros, and
    passes over a row of them at once.
    """
    high = data.find(0, 3)
    while 0 <= high <= len(data) - 5:
        if any(data[high - 3 : high]):
            yield high - 3
            high = data.find(0, high + 1)
            continue
        following = _NOT_ZERO.search(data, high)
        if following is None:
            return
        high = data.find(0, following.start())


_NOT_ZERO = re.compile(rb"[^\0]")


def check_address(address: int) -> int:
    """Return an address if it is one. Raises `RequestError` ``bad_request``."""
    if type(address) is not int or not 0 <= address <= ADDRESS_MAX:
        raise error("bad_request", f"{shown(address)} is no address", "an integer from 0 to 2^63 - 1")
    return address
