"""The headers of records, for producers, the broker and readers.

A record's headers are one msgpack map of text (UTF-8) to binary, at most `HEADERS_BYTES_MAX` bytes, or no
bytes at all. Any msgpack encoding of such a map is valid. A name that occurs twice has its last value.

Producers call `encode_headers`. The broker calls `check_header_column` for a whole batch before it stores
the batch. Logs may hold other bytes, from brokers that did not check: readers call `readable_headers`, which
keeps these bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import NoReturn

import msgpack

from quothwire.errors import QuothError, error
from quothwire.native import compiled

HEADERS_BYTES_MAX = 65_535
"""Encoded headers of one record. They are metadata, not a second value."""
FEW = 4
"""Up to so many different headers are decoded one by one, which takes as long as to set up bulk decoding."""
CHUNK = 200
"""Different headers that one call decodes, in less than a millisecond."""
FIXED_MAX = 4
"""Bytes outside of values, for each record, up to which headers are compared byte by byte."""

_KINDS: dict[type, str] = {
    str: "text",
    bytes: "binary",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    type(None): "nil",
    list: "an array",
    dict: "a map",
}


class UnreadableHeaders(dict[str, bytes]):
    """An empty map in place of headers that cannot be decoded. raw: their bytes. problem: the reason."""

    __slots__ = ("problem", "raw")

    def __init__(self, raw: bytes = b"", problem: str = "") -> None:
        super().__init__()
        self.raw = raw
        self.problem = problem

    def __repr__(self) -> str:
        return f"UnreadableHeaders({self.raw!r}, {self.problem!r})"


@compiled("quothwire._native.record")
def encode_headers(headers: Mapping[str, bytes]) -> bytes:
    """Encode one record's headers. Raises `RequestError` ``too_large`` or ``bad_request``."""
    try:
        items = headers.items()
    except AttributeError:
        raise error("bad_request", "headers are a map of text to bytes") from None
    if not headers:
        return b""
    for name, value in items:
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise error("bad_request", f"header {name!r}: names are text, values are bytes")
    try:
        encoded: bytes = msgpack.packb(dict(headers))
    except UnicodeEncodeError:
        raise error("bad_request", "a header's name is not UTF-8") from None
    if len(encoded) > HEADERS_BYTES_MAX:
        raise error("too_large", f"headers of {len(encoded)} bytes, at most {HEADERS_BYTES_MAX}")
    return encoded


def decode_headers(encoded: bytes) -> dict[str, bytes]:
    """Decode one record's headers. Raises `Damaged` with the reason if they are invalid."""
    if not encoded:
        return {}
    if len(encoded) > HEADERS_BYTES_MAX:
        raise _invalid(f"{len(encoded)} bytes, at most {HEADERS_BYTES_MAX}")
    try:
        headers = msgpack.unpackb(encoded, raw=False, max_array_len=0, max_ext_len=0)
    except UnicodeDecodeError:
        raise _invalid("text that is not UTF-8") from None
    except (ValueError, RecursionError):
        raise _invalid("not one whole msgpack map of text to binary") from None
    if not isinstance(headers, dict):
        raise _invalid(f"{_kind(headers)}, not a map")
    for name, value in headers.items():
        if not isinstance(name, str):
            raise _invalid(f"a name that is {_kind(name)}, not text")
        if not isinstance(value, bytes):
            raise _invalid(f"the value of {name[:100]!r} is {_kind(value)}, not binary")
    return headers


def readable_headers(encoded: bytes) -> dict[str, bytes]:
    """Decode one record's headers. Invalid ones become `UnreadableHeaders`."""
    try:
        return decode_headers(encoded)
    except QuothError as problem:
        return UnreadableHeaders(encoded, problem.text)


def raw_of(headers: Mapping[str, bytes]) -> bytes:
    """Return the bytes of headers that cannot be decoded; no bytes for those that can."""
    raw: bytes = getattr(headers, "raw", b"")
    return raw


def problem_of(headers: Mapping[str, bytes]) -> str:
    """Return the reason for which headers cannot be decoded; empty for those that can."""
    problem: str = getattr(headers, "problem", "")
    return problem


def check_header_column(heap: bytes, offsets: Sequence[int]) -> None:
    """Check the headers of all records of a batch. Raises ``bad_batch`` that names a record and the reason.

    offsets: where each record's headers begin in the heap, and its end; they rise from 0. Costs 50 to 100 ns
    a record where all have equal headers, or headers that differ only in the bytes of values; else about 1 us
    for each different headers, in steps of `CHUNK`, between which other threads run.
    """
    if len(offsets) > FEW + 1 and _are_alike(heap, offsets):
        return
    rows = [heap[begin:end] for begin, end in zip(offsets, offsets[1:], strict=False)]  # noqa: RUF007
    different = list(dict.fromkeys(filter(None, rows)))
    for begin in range(0, len(different), CHUNK):
        chunk = different[begin : begin + CHUNK]
        if not _are_headers(chunk):
            _raise_wrong(chunk, rows)


def _raise_wrong(chunk: Iterable[bytes], rows: list[bytes]) -> NoReturn:
    """Raise the reason for the first headers of a chunk that are invalid, with the number of the record."""
    for encoded in chunk:
        try:
            decode_headers(encoded)
        except QuothError as problem:
            which = f"record {rows.index(encoded)} of {len(rows)}, counted from 0"
            raise error("bad_batch", f"{which}: {problem.text}") from None
    raise AssertionError("headers that are valid one by one and invalid in bulk")


def _are_headers(rows: Sequence[bytes]) -> bool:
    """True if all rows are valid headers and none is empty. Many rows take no step each."""
    if len(rows) <= FEW:
        return all(type(readable_headers(row)) is dict for row in rows)
    if max(map(len, rows)) > HEADERS_BYTES_MAX:
        return False
    unpacker = msgpack.Unpacker(raw=False, max_array_len=0, max_ext_len=0)
    unpacker.feed(b"".join(rows))
    try:
        maps, ends = zip(*zip(unpacker, iter(unpacker.tell, None), strict=False), strict=True)
    except (ValueError, RecursionError):
        return False
    return (
        list(ends) == list(accumulate(map(len, rows)))
        and {dict}.issuperset(map(type, maps))
        and {str}.issuperset(map(type, chain.from_iterable(maps)))
        and {bytes}.issuperset(map(type, chain.from_iterable(map(dict.values, maps))))
    )


def _are_alike(heap: bytes, offsets: Sequence[int]) -> bool:
    """True if all records' headers have one size, and are equal or of one shape."""
    records, size = len(offsets) - 1, offsets[1]
    if not size or size * records != len(heap) or list(offsets) != list(range(0, len(heap) + 1, size)):
        return False
    first = heap[:size]
    return _are_headers([first]) and (heap == first * records or _is_of_one_shape(heap, first))


def _is_of_one_shape(heap: bytes, first: bytes) -> bool:
    """True if the headers in a heap, all as long as the first, differ only in the bytes of values."""
    size = len(first)
    records = len(heap) // size
    fixed = _bytes_beside_values(first)
    if len(fixed) > FIXED_MAX * records:
        return False
    return all(heap[place::size] == first[place : place + 1] * records for place in fixed)


def _bytes_beside_values(encoded: bytes) -> list[int]:
    """Return the positions of the bytes that do not belong to a value."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(encoded)
    found: list[int] = []
    begin = 0
    for _ in range(unpacker.read_map_header()):
        unpacker.skip()
        value = len(unpacker.unpack())
        end = unpacker.tell()
        found += range(begin, end - value)
        begin = end
    found += range(begin, len(encoded))
    return found


def _invalid(reason: str) -> QuothError:
    return error("damaged", f"the record's headers are no map of text to binary: {reason}")


def _kind(found: object) -> str:
    return _KINDS.get(type(found), "of another type")
