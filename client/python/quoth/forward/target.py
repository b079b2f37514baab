"""The batches of a forwarding that its target topic holds, by which the forwarding continues after a
failure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from quothwire import batch
from quothwire.batch import Header, Stored
from quothwire.ingest import repaired

KNOWN_MAX = 10_000
"""Batches of the topic, newest last, with which those of the source are compared: more than are acknowledged
between two saves."""


class _Known(NamedTuple):
    """A forwarded batch in the topic. last: the pointer of its last record there."""

    records: int
    fingerprint: int
    last: int


class ForwardedBatches:
    """The forwarded batches in a topic. Batches have the numbers 1 + ordinal as sequences.

    expected: the ordinal of the next batch, -1 if it is not known.
    """

    def __init__(self) -> None:
        self.expected = -1
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._compared_from = 0
        """Batches up to this sequence are in the topic; their contents are not compared."""
        self._gone: list[tuple[int, int]] = []
        """Ranges of ordinals that the topic held, and that were trimmed or damaged there since."""

    def restart(self, expected: int) -> None:
        """Forget all batches. expected: the ordinal of the next one, -1 if it is not known."""
        self.expected = expected
        self._compared_from = 0
        self._known.clear()
        self._gone.clear()

    def add(self, found: Iterable[Stored]) -> None:
        """Add batches of the topic, in order."""
        for one in found:
            header = one.header
            ordinal = header.sequence - 1
            if self.expected < ordinal:  # a broker takes no holes, so the topic held these once
                self._gone.append((max(0, self.expected), ordinal))
            self._known[header.sequence] = _Known(header.records, _fingerprint(one.data), header.last)
            if len(self._known) > KNOWN_MAX:
                self._compared_from, _ = self._known.popitem(last=False)
            self.expected = ordinal + header.records

    @property
    def is_empty(self) -> bool:
        """True if the topic holds none."""
        return not self._known

    def hold(self, one: Stored, source: int) -> bool:
        """Return True if the topic holds a batch of the source, or held it. source: its log's id."""
        header = one.header
        if header.end_ordinal > self.expected:
            return False
        known = self._known.get(header.ordinal + 1)
        if known is not None and known.records == header.records and _is_same(one, known.fingerprint, source):
            return True
        gone = any(first <= header.ordinal and header.end_ordinal <= end for first, end in self._gone)
        return gone or header.ordinal < self._compared_from

    def last_of(self, header: Header) -> int | None:
        """Return the pointer of a batch's last record in the topic, None if it is not known."""
        known = self._known.get(header.ordinal + 1)
        return None if known is None else known.last


def _is_same(one: Stored, fingerprint: int, source: int) -> bool:
    """Return True if a batch has the fingerprint, as it is or repaired."""
    if _fingerprint(one.data) == fingerprint:
        return True
    return _fingerprint(memoryview(repaired(one.data, source)[0])) == fingerprint


def _fingerprint(data: memoryview) -> int:
    """Return a hash of a batch's records, which does not depend on its producer."""
    return xxh3_64_intdigest(data[batch.HEADER_BYTES :])
