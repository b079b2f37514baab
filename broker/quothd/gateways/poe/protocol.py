"""Poe's protocol without I/O: bytes become requests, answers become bytes. All integers are big-endian.

    frame     u32 length of type and body    u16 type    body
    0 read    u56 pointer, exclusive    u32 limit, 2 or more    topic: all that remains
    1 records any number of: u32 7 + n    u56 pointer    n bytes of a value         answers 0; none: caught up
    2 put     u32 length of the topic    topic    one or more of: u32 n    n bytes of a value, n > 0
    3 stored  u56 pointer of the last value                                         answers 2

There is no answer for an error: the connection is closed. A frame of less than a type is closed by the first
byte behind its length, whatever the length is: so an announced 0 waits for a byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from quothwire.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from quothwire.errors import QuothError
from quothwire.topic import TOPIC_BYTES_MAX, decode_topic

READ, RECORDS, PUT, STORED = range(4)
FRAME_BYTES_MAX = BATCH_BYTES_MAX + TOPIC_BYTES_MAX
"""The largest length: no more values fit into a batch, which has at least as many bytes beside them."""
LIMIT_LEAST = 2
REPLY_BYTES_MAX = 2**20
"""A reply ends before the record that would make it larger, unless that is its first."""

LENGTH_BYTES, _TYPE_BYTES, _POINTER_BYTES = 4, 2, 7
_HEAD = struct.Struct(">IH")
_PREFIX_BYTES = LENGTH_BYTES + _POINTER_BYTES


class PoeRead(NamedTuple):
    """A request for up to `limit` records behind the pointer `after`. topic: "" for no topic's name."""

    topic: str
    after: int
    limit: int


class PoePut(NamedTuple):
    """A request to store values."""

    topic: str
    values: list[bytes]


class PoeClose(NamedTuple):
    """The end of a connection, which gets no more answers. reason: a text for the log."""

    reason: str


PoeRequest: TypeAlias = PoeRead | PoePut


class PoeRequests:
    """The requests in the bytes of one connection, which may come in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._close: PoeClose | None = None

    @property
    def received(self) -> int:
        """The bytes that were received and belong to no request yet."""
        return len(self._buffer)

    @property
    def expected(self) -> int:
        """The bytes of the request that is being received; 0 if its length is not known yet."""
        if len(self._buffer) < LENGTH_BYTES:
            return 0
        return LENGTH_BYTES + int.from_bytes(self._buffer[:LENGTH_BYTES])

    @property
    def topic(self) -> str:
        """The topic of the put that is being received; "" if it has none, or none that is known yet."""
        if len(self._buffer) < _HEAD.size or _HEAD.unpack_from(self._buffer)[1] != PUT:
            return ""
        begin = _HEAD.size + LENGTH_BYTES
        end = begin + int.from_bytes(self._buffer[_HEAD.size : begin])
        if end > min(len(self._buffer), begin + TOPIC_BYTES_MAX):
            return ""
        with suppress(QuothError):
            return decode_topic(bytes(self._buffer[begin:end]))
        return ""

    def receive(self, data: bytes) -> None:
        """Add bytes that have come. Those behind a `PoeClose` are dropped."""
        if self._close is None:
            self._buffer += data

    def next(self) -> PoeRequest | PoeClose | None:
        """Return the next request, or None until more bytes come. Behind a `PoeClose` there is only that."""
        if self._close is None:
            found = self._next()
            if not isinstance(found, PoeClose):
                return found
            self._close = found
            self._buffer.clear()
        return self._close

    def _next(self) -> PoeRequest | PoeClose | None:
        buffer = self._buffer
        if len(buffer) <= LENGTH_BYTES:
            return _check_length(self.expected)
        if (problem := _check_length(self.expected)) is not None:
            return problem
        if self.expected < _HEAD.size:
            return PoeClose("a frame is too short for its type")
        if len(buffer) < _HEAD.size:
            return None
        length, kind = _HEAD.unpack_from(buffer)
        if kind not in _DECODED:
            return PoeClose(f"there is no request of type {kind}")
        if len(buffer) < LENGTH_BYTES + length:
            return None
        body = bytes(memoryview(buffer)[_HEAD.size : LENGTH_BYTES + length])
        del buffer[: LENGTH_BYTES + length]
        return _DECODED[kind](body)


def _check_length(size: int) -> PoeClose | None:
    """Return the end for a frame of too many bytes. size: with its length."""
    if size - LENGTH_BYTES <= FRAME_BYTES_MAX:
        return None
    return PoeClose(f"a frame of {size - LENGTH_BYTES} bytes, at most {FRAME_BYTES_MAX}")


def _decode_read(body: bytes) -> PoeRead | PoeClose:
    if len(body) < _PREFIX_BYTES:
        return PoeClose("a read is too short for its pointer and its limit")
    limit = int.from_bytes(body[_POINTER_BYTES:_PREFIX_BYTES])
    if limit < LIMIT_LEAST:
        return PoeClose(f"a read of at most {limit} records: at least {LIMIT_LEAST}")
    try:
        topic = decode_topic(body[_PREFIX_BYTES:])
    except QuothError:  # no topic has this name, as Poe answers, too
        topic = ""
    return PoeRead(topic, int.from_bytes(body[:_POINTER_BYTES]), limit)


def _decode_put(body: bytes) -> PoePut | PoeClose:
    begin = LENGTH_BYTES + int.from_bytes(body[:LENGTH_BYTES])
    if begin > len(body):
        return PoeClose("the topic of a put reaches beyond its frame")
    try:
        topic = decode_topic(body[LENGTH_BYTES:begin])
    except QuothError as problem:
        return PoeClose(problem.text)
    values: list[bytes] = []
    while begin < len(body) and len(values) < BATCH_RECORDS_MAX:
        end = begin + LENGTH_BYTES
        begin, end = end, end + int.from_bytes(body[begin:end])
        if begin >= end:
            return PoeClose("a put of an empty value")
        if end > len(body):
            return PoeClose("a value of a put reaches beyond its frame")
        values.append(body[begin:end])
        begin = end
    if begin < len(body):
        return PoeClose(f"a put of more than {BATCH_RECORDS_MAX} values")
    return PoePut(topic, values) if values else PoeClose("a put without values")


_DECODED = {READ: _decode_read, PUT: _decode_put}


# -- answers --------------------------------------------------------------------------------------------


def encode_stored(pointer: int) -> bytes:
    """Return the answer to a put. pointer: that of its last value."""
    return _HEAD.pack(_TYPE_BYTES + _POINTER_BYTES, STORED) + pointer.to_bytes(_POINTER_BYTES)


class PoeRecords:
    """The answer to a read, while records are added to it. limit: the most records."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.is_full = False

    @property
    def left(self) -> int:
        """The records that it may still take."""
        return self._left

    def add(self, first: int, values: Sequence[bytes]) -> None:
        """Add values with the pointers `first`, `first` + 1 and so on, until it is full."""
        for pointer, value in enumerate(values, first):
            size = _PREFIX_BYTES + len(value)
            if self._parts and self._size + size > REPLY_BYTES_MAX:
                self.is_full = True
            if self.is_full:  # for good: a smaller value behind one that was left out has to be left out, too
                return
            prefix = (_POINTER_BYTES + len(value)) << 8 * _POINTER_BYTES | pointer
            self._parts += prefix.to_bytes(_PREFIX_BYTES), value
            self._size += size
            self._left -= 1
            self.is_full = not self._left

    def encode(self) -> bytes:
        """Return the frame."""
        return b"".join((_HEAD.pack(_TYPE_BYTES + self._size, RECORDS), *self._parts))
