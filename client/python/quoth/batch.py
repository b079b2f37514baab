"""Batches of a topic, the fast path of reading: columns, from which messages are made on access."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import accumulate, chain, repeat
from operator import eq
from typing import NamedTuple, overload

from quoth.message import Message
from quothwire.batch import DecodedBatch as Columns
from quothwire.batch import Header
from quothwire.headers import readable_headers
from quothwire.native import compiled

_NOTHING: dict[str, bytes] = {}
_new = tuple.__new__
"""Makes a `Message` from its fields in a third of the time that `Message` or `Message._make` takes."""
_compiled = compiled("quothwire._native.messages")


class StoredBatch(NamedTuple):
    """A batch as it is stored: records with the pointers ``header.base`` to ``header.last``.

    data: header and body, see PROTOCOL.md; their checksums match. The broker has checked the offsets in it.
    Check them again (`quothwire.batch.check`, or Arrow's own ``validate``) for code that would not notice a
    wrong one. log: the id of the topic's log, which seeds the header's checksum.
    """

    header: Header
    data: memoryview
    log: int


class Batch:
    """Consecutive records: `values[i]` has the pointer `first + i`. Iterating yields messages.

    keys: a list with None where there is no key, or None if the batch has no keys at all.
    """

    __slots__ = ("_encoded", "_headers", "first", "keys", "ordinal", "topic", "values")

    def __init__(
        self,
        topic: str,
        first: int,
        ordinal: int,
        values: list[bytes],
        keys: list[bytes | None] | None,
        encoded: list[bytes] | None,
    ) -> None:
        """encoded: the stored bytes of the records' headers."""
        self.topic = topic
        self.first = first
        self.ordinal = ordinal
        self.values = values
        self.keys = keys
        self._encoded = encoded
        self._headers: list[dict[str, bytes]] | None = None

    @classmethod
    def of(cls, topic: str, columns: Columns, skip: int) -> Batch:
        """Return a stored batch without its first `skip` records."""
        header, values, keys, encoded = columns
        whole = cls(topic, header.base, header.ordinal, values, keys, encoded)
        return whole.part(skip, len(values)) if skip else whole

    def head(self, count: int) -> Batch:
        """Return the first records as a batch that does not keep the others in memory."""
        return self if count >= len(self.values) else self.part(0, max(0, count))

    def part(self, begin: int, end: int) -> Batch:
        """Return some of the records as a batch that does not keep the others in memory."""
        rows = slice(begin, end)
        keys, encoded = self.keys, self._encoded
        return Batch(
            self.topic,
            self.first + begin,
            self.ordinal + begin,
            self.values[rows],
            keys and keys[rows],
            encoded and encoded[rows],
        )

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the records as messages."""
        headers = None if self._encoded is None else self.headers
        return messages_of(self.topic, self.first, self.values, self.keys, headers)

    @property
    def last(self) -> int:
        """The pointer of the last record."""
        return self.first + len(self.values) - 1

    @property
    def headers(self) -> list[dict[str, bytes]] | None:
        """The decoded headers of the records; None if the batch has none.

        Headers that cannot be decoded are `quothwire.headers.UnreadableHeaders`: empty, with the stored
        bytes.
        """
        if self._headers is None and self._encoded is not None:
            self._headers = list(map(readable_headers, self._encoded))
        return self._headers

    def message(self, row: int) -> Message:
        """Return one record as a message."""
        headers = readable_headers(self._encoded[row]) if self._encoded else _NOTHING
        key = self.keys[row] if self.keys else None
        return Message(self.topic, self.first + row, self.values[row], key, headers)

    def messages(self) -> list[Message]:
        """Return the records as messages, all at once."""
        return list(self)


@_compiled
def messages_of(
    topic: str,
    first: int,
    values: list[bytes],
    keys: list[bytes | None] | None,
    headers: list[dict[str, bytes]] | None,
) -> Iterator[Message]:
    """Iterate over the columns of consecutive records as messages."""
    count = len(values)
    rows = zip(
        repeat(topic, count),
        range(first, first + count),
        values,
        keys or repeat(None),
        headers or repeat(_NOTHING),
        strict=False,
    )
    return map(_new, repeat(Message, count), rows)


@_compiled
def chained(parts: Iterable[Iterable[Message]]) -> Iterator[Message]:
    """Iterate over the messages of several batches in turn."""
    return chain.from_iterable(parts)


@_compiled
def flattened(parts: Generator[Iterable[Message], None, None]) -> Iterator[Message]:
    """Iterate over the messages of all parts that a generator yields. Closing it closes the generator."""
    try:
        for part in parts:
            yield from part
    finally:
        parts.close()


class Messages(Sequence[Message]):
    """The messages of a read, oldest first: like a list, but each message is made on access.

    A message that is not kept costs neither memory nor time of Python's garbage collector. Making all of them
    in advance would take twice as long as everything else.
    """

    __slots__ = ("_ends", "_parts")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, parts: Sequence[Batch]) -> None:
        self._parts = parts
        self._ends = list(accumulate([len(part.values) for part in parts]))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Message]:
        return chained(self._parts)

    @overload
    def __getitem__(self, row: int) -> Message: ...
    @overload
    def __getitem__(self, row: slice) -> list[Message]: ...
    def __getitem__(self, row: int | slice) -> Message | list[Message]:
        rows = range(len(self))[row]
        return self._message(rows) if isinstance(rows, int) else list(map(self._message, rows))

    def _message(self, row: int) -> Message:
        number = bisect_right(self._ends, row)
        part = self._parts[number]
        row -= self._ends[number] - len(part.values)
        return part.message(row)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Messages | list):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __repr__(self) -> str:
        return repr(list(self))
