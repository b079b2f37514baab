"""A batch of a topic, the fast path of reading: columns instead of messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from quoth.message import Gap, Message, OnGap
from quothwire.batch import Batch as Columns
from quothwire.batch import decode_headers
from quothwire.errors import Damaged

_NOTHING: dict[str, bytes] = {}
_new = tuple.__new__
"""Makes a `Message` of its fields: a third of what `Message` itself takes, or `Message._make`."""


class Batch:
    """Consecutive records: `values[i]` has the pointer `first + i`.

    keys: a list with None where there is no key, or None if the batch has no keys at all.
    """

    __slots__ = ("_columns", "first", "keys", "ordinal", "topic", "values")

    def __init__(self, topic: str, columns: Columns, skip: int = 0) -> None:
        header, values, keys, _ = columns
        self.topic = topic
        self.first = header.base + skip
        self.ordinal = header.ordinal + skip
        self.values = values[skip:] if skip else values
        self.keys = keys[skip:] if skip and keys else keys
        self._columns = columns

    def __len__(self) -> int:
        return len(self.values)

    @property
    def last(self) -> int:
        """The pointer of the last record."""
        return self.first + len(self.values) - 1

    @property
    def headers(self) -> list[dict[str, bytes]] | None:
        """The records' headers, decoded now; None if the batch has none. Raises `Damaged`."""
        encoded = self._columns.headers
        if encoded is None:
            return None
        return [decode_headers(one) for one in encoded[len(encoded) - len(self.values) :]]

    def message(self, row: int) -> Message:
        """One record as a message. Raises `Damaged` if its headers are none."""
        encoded = self._columns.headers
        headers = decode_headers(encoded[row - len(self.values)]) if encoded else _NOTHING
        key = self.keys[row] if self.keys else None
        return Message(self.topic, self.first + row, self.values[row], key, headers)

    def messages(self) -> list[Message]:
        """The records as messages. Raises `Damaged` if headers are none."""
        count = len(self.values)
        rows = zip(
            repeat(self.topic, count),
            range(self.first, self.first + count),
            self.values,
            self.keys or repeat(None),
            self.headers or repeat(_NOTHING),
            strict=False,
        )
        return list(map(_new, repeat(Message, count), rows))

    def readable(self, on_gap: OnGap) -> Iterator[Message]:
        """The records as messages; one whose headers are none is told as a gap in its turn, and left out."""
        try:
            return iter(self.messages())
        except Damaged:
            return self._one_by_one(on_gap)

    def _one_by_one(self, on_gap: OnGap) -> Iterator[Message]:
        for row in range(len(self)):
            try:
                message = self.message(row)
            except Damaged:
                pointer = self.first + row
                ordinal = self._columns.header.end_ordinal - len(self) + row
                on_gap(Gap(self.topic, pointer - 1, pointer + 1, 1, "damaged", ordinal))
            else:
                yield message
