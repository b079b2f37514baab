"""A record: one message of a log, with the pointer that identifies it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

from quothwire.batch import Batch
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
        """The headers as stored if they cannot be decoded and `headers` is empty for that; else no bytes."""
        return raw_of(self.headers)

    @property
    def headers_problem(self) -> str:
        """Why the headers cannot be decoded; empty if they can."""
        return problem_of(self.headers)


class Headers(Mapping[str, bytes]):
    """A record's headers, decoded when they are looked at. What cannot be decoded is an empty map.

    raw, problem: as `quothwire.headers.UnreadableHeaders` has them.
    """

    __slots__ = ("_encoded", "_opened")

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self._opened: dict[str, bytes] | None = None

    def __getitem__(self, name: str) -> bytes:
        return self._open()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._open())

    def __len__(self) -> int:
        return len(self._open())

    def __repr__(self) -> str:
        return f"Headers({self._encoded!r})"

    @property
    def raw(self) -> bytes:
        """The bytes as stored if they cannot be decoded, else none."""
        return self._encoded if self.problem else b""

    @property
    def problem(self) -> str:
        """Why they cannot be decoded, empty if they can."""
        return problem_of(self._open())

    def _open(self) -> dict[str, bytes]:
        if self._opened is None:
            self._opened = readable_headers(self._encoded)
        return self._opened


def closed_records_of(found: Batch, after: int = 0) -> list[Record]:
    """The records of a decoded batch with pointers above `after`, their headers not looked at yet."""
    return _records(found, after, _closed)


def records_of(found: Batch, after: int = 0) -> list[Record]:
    """The records of a decoded batch with pointers above `after`, their headers decoded."""
    return _records(found, after, readable_headers)


def _records(found: Batch, after: int, opened: Callable[[bytes], Mapping[str, bytes]]) -> list[Record]:
    header, values, keys, headers = found
    skip = max(0, after - header.base + 1)
    rows = zip(
        range(header.base + skip, header.last + 1),
        values[skip:] if skip else values,
        repeat(None) if keys is None else keys[skip:],
        repeat(_NOTHING) if headers is None else map(opened, headers[skip:]),
        strict=False,
    )
    return list(map(_new, repeat(Record), rows))


_NOTHING = Headers(b"")


def _closed(encoded: bytes) -> Mapping[str, bytes]:
    return Headers(encoded) if encoded else _NOTHING
