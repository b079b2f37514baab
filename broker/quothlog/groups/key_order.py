"""Order by key: of the records of a key, only the first that is not finished may be handed out.

Keys are compared by their hash. Two keys with one hash only wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from quothlog.groups.spans import Extents, Span, SpanState
from quothwire import batch
from quothwire.batch import Bytes
from quothwire.errors import QuothError


class KeyOrder:
    """The spans of a group, a record each, by the hash of their key; the first of each may be handed out."""

    def __init__(self) -> None:
        self._by_key: dict[int, deque[Span]] = {}

    def divide(
        self, extents: Extents, keys: Sequence[int], wanted: int, attempts: int
    ) -> tuple[list[Span], list[Span]]:
        """Make a span of each record until as many as wanted are not blocked; returns all, and those.

        keys: the hash of the key of each record of the extents.
        """
        spans: list[Span] = []
        free: list[Span] = []
        for pointer, key in zip(extents.pointers(), keys, strict=True):
            if len(free) == wanted:
                break
            span = Span(pointer - 1, pointer, attempts, extents=extents, key=key)
            self._add(span)
            if span.state is SpanState.FREE:
                free.append(span)
            spans.append(span)
        return spans, free

    def _add(self, span: Span) -> None:
        """Add a span behind all others. It is blocked if its key has an earlier one."""
        if not span.key:
            return
        waiting = self._by_key.setdefault(span.key, deque())
        if waiting:
            span.state = SpanState.BLOCKED
        waiting.append(span)

    def hold(self, span: Span, key: int) -> None:
        """Add a span that is not free, and holds up the later ones of its key. key: its hash."""
        span.key = key
        if key:
            self._by_key.setdefault(key, deque()).append(span)

    def remove(self, span: Span) -> Span | None:
        """Remove a span that is finished; returns the next one of its key if that is not blocked any more."""
        waiting = self._by_key.get(span.key) if span.key else None
        if not waiting:
            return None
        was_first = waiting[0] is span
        waiting.remove(span)
        if not waiting:
            del self._by_key[span.key]
        elif was_first and waiting[0].state is SpanState.BLOCKED:
            waiting[0].state = SpanState.FREE
            return waiting[0]
        return None


def hashes_of(batches: Sequence[Bytes], log_id: int, records: int) -> list[int]:
    """Return the hash of the key of each record in stored batches, 0 for a record without a key.

    Damaged ones have no key. records: their number, as the headers say.
    """
    hashes: list[int] = []
    for raw in batches:
        for one in batch.split(raw, log_id):
            try:
                keys = batch.decode(one, log_id).keys
            except QuothError:
                keys = None
            count = batch.parse_header(one, log_id).records
            hashes += map(_hash, keys) if keys is not None else [0] * count
    return hashes if len(hashes) == records else [0] * records


def _hash(key: bytes | None) -> int:
    return 0 if key is None else xxh3_64_intdigest(key) or 1
