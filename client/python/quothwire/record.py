"""Records: the messages of a log, each with the pointer that identifies it, and the buffer of new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import NamedTuple, NoReturn

from quothwire import batch
from quothwire.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, DecodedBatch
from quothwire.errors import QuothError, error, shown
from quothwire.headers import encode_headers, problem_of, raw_of, readable_headers
from quothwire.native import compiled

RECORD_BYTES = 13
"""Bytes of a record in a batch beside its contents: three offsets, and a bit rounded up."""
BUFFER_BYTES_MAX = BATCH_BYTES_MAX - 128
"""Bytes of records for which a batch has room, beside its header, the last offsets and padding."""

_new = tuple.__new__
"""Makes a named tuple of its fields: a third of what its class itself takes."""
_compiled = compiled("quothwire._native.record")


class Record(NamedTuple):
    """An opaque value with its pointer, an optional key and headers."""

    pointer: int
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]

    @property
    def raw_headers(self) -> bytes:
        """The headers as stored if they cannot be decoded, so that `headers` is empty; else no bytes."""
        return raw_of(self.headers)

    @property
    def headers_problem(self) -> str:
        """The reason for which the headers cannot be decoded; empty if they can."""
        return problem_of(self.headers)


class Headers(Mapping[str, bytes]):
    """A record's headers, decoded at the first access. Headers that cannot be decoded are an empty map.

    raw, problem: as `quothwire.headers.UnreadableHeaders` has them.
    """

    __slots__ = ("_decoded", "_encoded")

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self._decoded: dict[str, bytes] | None = None

    def __getitem__(self, name: str) -> bytes:
        return self._decode()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decode())

    def __len__(self) -> int:
        return len(self._decode())

    def __repr__(self) -> str:
        return f"Headers({self._encoded!r})"

    @property
    def raw(self) -> bytes:
        """The bytes as stored if they cannot be decoded; else no bytes."""
        return self._encoded if self.problem else b""

    @property
    def problem(self) -> str:
        """The reason for which they cannot be decoded; empty if they can."""
        return problem_of(self._decode())

    def _decode(self) -> dict[str, bytes]:
        if self._decoded is None:
            self._decoded = readable_headers(self._encoded)
        return self._decoded


_NO_HEADERS = Headers(b"")


def _headers(encoded: bytes) -> Mapping[str, bytes]:
    return Headers(encoded) if encoded else _NO_HEADERS


@_compiled
def records_of(found: DecodedBatch, after: int = 0) -> list[Record]:
    """Return the records of a decoded batch with pointers above `after`, their headers still encoded."""
    header, values, keys, headers = found
    skip = max(0, after - header.base + 1)
    rows = zip(
        range(header.base + skip, header.last + 1),
        values[skip:] if skip else values,
        repeat(None) if keys is None else keys[skip:],
        repeat(_NO_HEADERS) if headers is None else map(_headers, headers[skip:]),
        strict=False,
    )
    return list(map(_new, repeat(Record), rows))


@_compiled
def records_in(found: DecodedBatch, after: int = 0) -> Iterator[Record]:
    """Iterate over the records that `records_of` returns; one that nothing holds any more is filled again."""
    return iter(records_of(found, after))


def _exact_bytes(given: bytes, what: str) -> bytes:
    """Return bytes as such, also those of a subclass. Raises ``bad_request`` for anything else."""
    if type(given) is bytes:
        return given
    if not isinstance(given, bytes):
        raise error("bad_request", f"{what}, not {type(given).__name__}", "encode it")
    return bytes(memoryview(given))


def _too_large(size: int, limit: int) -> QuothError:
    return error("too_large", f"a record of {size} bytes, at most {limit}")


def _bounded(limit: int, most: int = BUFFER_BYTES_MAX, unit: str = "bytes") -> int:
    """Return a limit that a buffer can have. Raises ``bad_setting``."""
    if type(limit) is not int or not 1 <= limit <= most:
        raise error("bad_setting", f"a buffer of {shown(limit)} {unit}", f"1 to {most} {unit}")
    return limit


@_compiled
class RecordBuffer:
    """Records in memory, in the form of a batch, until they are encoded.

    is_atomic: any thread may call `append` without a lock, as in C; in Python the buffer is not thread-safe.
    size: bytes of its records in a batch, `RECORD_BYTES` for each and its contents. bytes_max: limits that
    size for more than one record; may be changed. record_bytes_max: limits the size of a single record.
    records_max: limits their number; may be changed. Sizes are 1 to `BUFFER_BYTES_MAX`, a number is 1 to
    `BATCH_RECORDS_MAX`, else `RequestError` ``bad_setting``.
    """

    is_atomic = False

    def __init__(self, bytes_max: int, record_bytes_max: int, records_max: int = BATCH_RECORDS_MAX) -> None:
        self.bytes_max = bytes_max
        self.records_max = records_max
        self._record_bytes_max = _bounded(record_bytes_max)
        self._rows: list[tuple[bytes, bytes | None, bytes]] = []
        self._size = 0
        self._is_sealed = False

    def __len__(self) -> int:
        return len(self._rows)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a RecordBuffer cannot be copied")

    @property
    def size(self) -> int:
        """See the class."""
        return self._size

    @property
    def bytes_max(self) -> int:
        """See the class."""
        return self._bytes_max

    @bytes_max.setter
    def bytes_max(self, limit: int) -> None:
        self._bytes_max = _bounded(limit)

    @property
    def records_max(self) -> int:
        """See the class."""
        return self._records_max

    @records_max.setter
    def records_max(self, limit: int) -> None:
        self._records_max = _bounded(limit, BATCH_RECORDS_MAX, "records")

    def append(
        self, value: bytes, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> int:
        """Add a record. Returns the number of records; 0, and adds nothing, without room or if it is sealed.

        Raises `RequestError`: ``too_large`` above `record_bytes_max`, ``bad_request`` for what is not bytes,
        and what `encode_headers` does; the buffer is unchanged then. Costs 60 ns (0.5 us in Python).
        """
        value = _exact_bytes(value, "a value is bytes")
        key = None if key is None else _exact_bytes(key, "a key is bytes or None")
        encoded = b"" if headers is None else encode_headers(headers)
        size = RECORD_BYTES + len(value) + len(key or b"") + len(encoded)
        if size > self._record_bytes_max:
            raise _too_large(size, self._record_bytes_max)
        if self._is_sealed or len(self._rows) >= self._records_max:
            return 0
        if self._rows and self._size + size > self._bytes_max:
            return 0
        self._rows.append((value, key, encoded))
        self._size += size
        return len(self._rows)

    def seal(self) -> None:
        """Take no more records."""
        self._is_sealed = True

    def unseal(self) -> None:
        """Take records again."""
        self._is_sealed = False

    def encoded(self, producer: int = 0, sequence: int = 0, flags: int = 0) -> bytes:
        """Encode all records as one batch, see `quothwire.batch.encode`. The buffer stays as it is."""
        values, keys, headers = self.contents()
        return batch.encode(values, keys, headers, producer=producer, sequence=sequence, flags=flags)

    def contents(self) -> tuple[list[bytes], list[bytes | None] | None, list[bytes] | None]:
        """Return values, keys and encoded headers; None for a column that no record has."""
        values = [value for value, _, _ in self._rows]
        keys = [key for _, key, _ in self._rows]
        headers = [encoded for _, _, encoded in self._rows]
        has_keys = any(key is not None for key in keys)
        return values, keys if has_keys else None, headers if any(headers) else None
