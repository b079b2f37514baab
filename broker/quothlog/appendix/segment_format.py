"""The bytes of appendix's files. All integers are big-endian.

    PREFIX_data     records, one behind the other          size u32 | pointer u56 | value
                                                           size = 7 + bytes of the value
    PREFIX_index    12 bytes for each record               pointer u56 | offset u40 in PREFIX_data
    PREFIX_lock     empty, there while the segment is open; a killed process leaves it

There is no header, no version and no checksum, neither of a record nor of a file. So the data file alone
has all records, and a wrong size, pointer or value cannot be recognised, unless something contradicts it: the
end of the file, a pointer that does not rise, the index. The two files are written one after the other
without fsync: after a kill the data ends inside a record or behind what the index lists.
"""

from __future__ import annotations

import re
from pathlib import Path
from struct import Struct

DATA_SUFFIX, INDEX_SUFFIX, LOCK_SUFFIX = "_data", "_index", "_lock"
SUFFIXES = (DATA_SUFFIX, INDEX_SUFFIX, LOCK_SUFFIX)

POINTER_BYTES = 7
HEADER_BYTES = 4 + POINTER_BYTES
"""Bytes in front of a record's value."""
ENTRY_BYTES = 12
"""Bytes of an entry of the index."""

_SIZE = Struct(">I")
_POINTER = Struct(">xxxQ")
"""The pointer behind the last byte of the size, which is masked off."""
_POINTER_MASK = 2**56 - 1
_OFFSET_BITS, _OFFSET_MASK = 40, 2**40 - 1

_YEARS_US = 2**51
"""71 years, so a segment without a record before it, too, may have one of our time."""

_DECIMAL = re.compile(r"[0-9]+")


def size_at(data: bytes, at: int) -> int:
    """Return the size of the record at an offset: all its bytes behind the four of the size itself."""
    return int(_SIZE.unpack_from(data, at)[0])


def pointer_at(data: bytes, at: int) -> int:
    """Return the pointer of the record at an offset."""
    return int(_POINTER.unpack_from(data, at)[0]) & _POINTER_MASK


def entries_of(data: bytes) -> list[tuple[int, int]]:
    """Decode whole entries of an index: the pointer and the offset of each record."""
    row = (int.from_bytes(data[at : at + ENTRY_BYTES]) for at in range(0, len(data), ENTRY_BYTES))
    return [(entry >> _OFFSET_BITS, entry & _OFFSET_MASK) for entry in row]


def ends_with_record(tail: bytes, last: int) -> bool:
    """Return True if a record behind the first byte of a tail ends exactly where the tail does.

    last: its pointer has to be above this one, by less than `_YEARS_US`. Then a chance hit takes 2^37 bytes.
    """
    end = len(tail)
    for high in range((end >> 8) + 1):  # the upper three bytes of the size, which 256 places have in common
        wanted = high.to_bytes(3)
        first, behind = end - 4 - (high << 8) - 255, end - 4 - (high << 8) + 3
        at = tail.find(wanted, max(first, 1), max(behind, 0))
        while at >= 0:
            size = size_at(tail, at)
            if (
                at + 4 + size == end
                and size >= POINTER_BYTES
                and last < pointer_at(tail, at) < last + _YEARS_US
            ):
                return True
            at = tail.find(wanted, at + 1, behind)
    return False


def encode_record(pointer: int, value: bytes) -> bytes:
    """Encode a record of a data file."""
    return _SIZE.pack(POINTER_BYTES + len(value)) + pointer.to_bytes(POINTER_BYTES) + value


def encode_entry(pointer: int, offset: int) -> bytes:
    """Encode an entry of an index."""
    return (pointer << _OFFSET_BITS | offset).to_bytes(ENTRY_BYTES)


def prefix_of(path: Path) -> str | None:
    """Return the prefix in the name of a file of appendix, None for another name."""
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return None


def index_name(data_name: str) -> str:
    """Return the name of the index beside a data file."""
    return data_name.removesuffix(DATA_SUFFIX) + INDEX_SUFFIX


def is_number(prefix: str) -> bool:
    """Return True for a prefix as Poe gives it: a decimal number."""
    return _DECIMAL.fullmatch(prefix) is not None
