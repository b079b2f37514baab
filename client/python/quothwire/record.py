"""A record: one message of a log, with the pointer that identifies it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from quothwire.batch import Batch, decode_headers


class Record(NamedTuple):
    """An opaque value with its pointer, an optional key and headers."""

    pointer: int
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]


def records_of(found: Batch, after: int = 0) -> list[Record]:
    """The records of a decoded batch with pointers above `after`."""
    header, values, keys, headers = found
    skip = max(0, after - header.base + 1)
    return [
        Record(
            header.base + i,
            values[i],
            keys[i] if keys is not None else None,
            decode_headers(headers[i]) if headers is not None else {},
        )
        for i in range(skip, header.records)
    ]
