"""Records of a log as columns, for a program that does not need an object for each."""

from __future__ import annotations

from typing import NamedTuple

from quothwire.batch import DecodedBatch


class LogBatch(NamedTuple):
    """Consecutive records: `values[i]` has the pointer ``first + i`` and the ordinal ``ordinal + i``.

    keys: a list with None where there is no key, None if no record has one. headers: the encoded headers of
    each record, see `quothwire.headers.readable_headers`; None if no record has any.
    """

    first: int
    ordinal: int
    values: list[bytes]
    keys: list[bytes | None] | None
    headers: list[bytes] | None

    @classmethod
    def of(cls, found: DecodedBatch, after: int) -> LogBatch:
        """Return the records of a batch with pointers above `after`."""
        header, values, keys, headers = found
        skip = max(0, after - header.base + 1)
        if skip:
            values = values[skip:]
            keys, headers = keys and keys[skip:], headers and headers[skip:]
        return cls(header.base + skip, header.ordinal + skip, values, keys, headers)

    @property
    def last(self) -> int:
        """The pointer of the last record."""
        return self.first + len(self.values) - 1
