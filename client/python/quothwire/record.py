"""A record: one message of a log, with the pointer that identifies it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

from quothwire.batch import DecodedBatch
from quothwire.headers import problem_of, raw_of, readable_headers

_new = tuple.__new__
"""Makes a named tuple of its fields: a third of what its class itself takes."""


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


_NO_HEADERS = Headers(b"")


def _headers(encoded: bytes) -> Mapping[str, bytes]:
    return Headers(encoded) if encoded else _NO_HEADERS
