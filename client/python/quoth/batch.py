"""A batch of a topic, the fast path of reading: columns, of which messages are made as they are looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, repeat
from operator import eq
from typing import overload

from quoth.message import Gap, Message, OnGap
from quothwire.batch import Batch as Columns
from quothwire.batch import decode_headers
from quothwire.errors import Damaged

_NOTHING: dict[str, bytes] = {}
_new = tuple.__new__
"""Makes a `Message` of its fields: a third of what `Message` itself takes, or `Message._make`."""


class Batch:
    """Consecutive records: `values[i]` has the pointer `first + i`. Iterating gives them as messages.

    keys: a list with None where there is no key, or None if the batch has no keys at all.
    """

    __slots__ = ("_encoded", "_headers", "first", "keys", "ordinal", "topic", "values")

    def __init__(self, topic: str, columns: Columns, skip: int = 0) -> None:
        header, values, keys, encoded = columns
        self.topic = topic
        self.first = header.base + skip
        self.ordinal = header.ordinal + skip
        self.values = values[skip:] if skip else values
        self.keys = keys[skip:] if skip and keys else keys
        self._encoded = encoded[skip:] if skip and encoded else encoded
        self._headers: list[dict[str, bytes]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Message]:
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
        return map(_new, repeat(Message, count), rows)

    @property
    def last(self) -> int:
        """The pointer of the last record."""
        return self.first + len(self.values) - 1

    @property
    def headers(self) -> list[dict[str, bytes]] | None:
        """The records' headers, decoded now; None if the batch has none. Raises `Damaged`."""
        if self._headers is None and self._encoded is not None:
            self._headers = list(map(decode_headers, self._encoded))
        return self._headers

    def message(self, row: int) -> Message:
        """One record as a message. Raises `Damaged` if its headers are none."""
        headers = decode_headers(self._encoded[row]) if self._encoded else _NOTHING
        key = self.keys[row] if self.keys else None
        return Message(self.topic, self.first + row, self.values[row], key, headers)

    def messages(self) -> list[Message]:
        """The records as messages, all at once. Raises `Damaged` if headers are none."""
        return list(self)

    def readable(self, on_gap: OnGap) -> Iterable[Message]:
        """The batch itself; if headers are none, the other records: those are told as gaps in their turn."""
        try:
            self.headers  # noqa: B018
        except Damaged:
            return self._one_by_one(on_gap)
        return self

    def _one_by_one(self, on_gap: OnGap) -> Iterator[Message]:
        for row in range(len(self)):
            try:
                message = self.message(row)
            except Damaged:
                pointer = self.first + row
                on_gap(Gap(self.topic, pointer - 1, pointer + 1, 1, "damaged", self.ordinal + row))
            else:
                yield message


def count_up_to(pointer: int, part: Batch | list[Message]) -> int:
    """How many of these records have this pointer or one below."""
    if isinstance(part, Batch):
        return min(max(0, pointer + 1 - part.first), len(part))
    return sum(message.pointer <= pointer for message in part)


class Messages(Sequence[Message]):
    """What was read, oldest first: like a list, but each message is made as it is looked at.

    So one that nobody keeps costs neither memory nor the time of Python's collector: to make all of them
    first takes twice as long as everything else.
    """

    __slots__ = ("_count", "_ends", "_parts")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, parts: Sequence[Batch | list[Message]], count: int) -> None:
        """The first messages of batches, so many."""
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        return islice(chain.from_iterable(self._parts), self._count)

    @overload
    def __getitem__(self, row: int) -> Message: ...
    @overload
    def __getitem__(self, row: slice) -> list[Message]: ...
    def __getitem__(self, row: int | slice) -> Message | list[Message]:
        rows = range(self._count)[row]
        return self._message(rows) if isinstance(rows, int) else list(map(self._message, rows))

    def _message(self, row: int) -> Message:
        number = bisect_right(self._ends, row)
        part = self._parts[number]
        row -= self._ends[number] - len(part)
        return part.message(row) if isinstance(part, Batch) else part[row]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Messages | list):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __repr__(self) -> str:
        return repr(list(self))
