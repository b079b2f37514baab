"""A record: one message of a log, with the pointer that identifies it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from quothwire.batch import Batch, decode_headers


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
    return [
        Record(
            header.base + i,
            values[i],
            keys[i] if keys is not None else None,
            Headers(headers[i]) if headers is not None and headers[i] else {},
        )
        for i in range(skip, header.records)
    ]


def records_of(found: Batch, after: int = 0) -> list[Record]:
    """The records of a decoded batch with pointers above `after`.

    Raises `Damaged` if the headers of one of them are none.
    """
    return [
        record._replace(headers=dict(record.headers)) if record.headers else record
        for record in closed_records_of(found, after)
    ]
