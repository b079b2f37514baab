"""A record: one message of a log, with the pointer that identifies it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

from quothwire.batch import Batch, decode_headers

_new = tuple.__new__
"""Makes a named tuple of its fields: a third of what its class itself takes."""


class Record(NamedTuple):
    """An opaque value with its pointer, an optional key and headers."""

    pointer: int
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]


class Headers(Mapping[str, bytes]):
    """A record's headers, decoded when they are looked at: a log takes whatever a producer wrote there.

    Whoever looks gets `Damaged` if they are none; whoever wants the value alone need not know.
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

    def _open(self) -> dict[str, bytes]:
        if self._opened is None:
            self._opened = decode_headers(self._encoded)
        return self._opened


def closed_records_of(found: Batch, after: int = 0) -> list[Record]:
    """The records of a decoded batch with pointers above `after`, their headers not looked at yet."""
    header, values, keys, headers = found
    skip = max(0, after - header.base + 1)
    rows = zip(
        range(header.base + skip, header.last + 1),
        values[skip:] if skip else values,
        repeat(None) if keys is None else keys[skip:],
        repeat(_NOTHING) if headers is None else map(_closed, headers[skip:]),
        strict=False,
    )
    return list(map(_new, repeat(Record), rows))


def records_of(found: Batch, after: int = 0) -> list[Record]:
    """The records of a decoded batch with pointers above `after`.

    Raises `Damaged` if the headers of one of them are none.
    """
    return [
        record._replace(headers=dict(record.headers)) if record.headers else record
        for record in closed_records_of(found, after)
    ]


_NOTHING = Headers(b"")


def _closed(encoded: bytes) -> Mapping[str, bytes]:
    return Headers(encoded) if encoded else _NOTHING
