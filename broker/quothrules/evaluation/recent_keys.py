"""The keys of the last span of a topic, for finding duplicates."""

from __future__ import annotations

from collections import OrderedDict

from xxhash import xxh3_128_digest


class RecentKeys:
    """For each of the keys that were seen last, the pointer of its newest record.

    What it holds after a record depends only on the records of the last span before it, so it can be rebuilt
    from the topic. Of more than `keys_max` keys it forgets those that were not seen for longest.
    """

    def __init__(self, span_us: int, keys_max: int) -> None:
        self._span_us = span_us
        self._keys_max = keys_max
        self._newest: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._newest)

    def has(self, key: bytes, pointer: int) -> bool:
        """Return True if the key was seen in the span before a pointer."""
        newest = self._newest.get(_digest(key))
        return newest is not None and newest < pointer <= newest + self._span_us

    def see(self, key: bytes, pointer: int) -> None:
        """Remember a key. Pointers rise from call to call."""
        digest = _digest(key)
        self._newest[digest] = pointer
        self._newest.move_to_end(digest)
        while len(self._newest) > self._keys_max or self._is_old(pointer):
            self._newest.popitem(last=False)

    def _is_old(self, pointer: int) -> bool:
        return pointer - next(iter(self._newest.values())) > self._span_us


def _digest(key: bytes) -> bytes:
    """Return 16 bytes in place of a key of any length."""
    return xxh3_128_digest(key)
