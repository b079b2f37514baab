"""The account that a client keeps of what it has sent to one topic, and the comparison with what is stored.

A batch without an answer may have been stored, whole and once, or not at all. The first read after the next
start decides which of them it is, and later reads have to agree.
"""

from __future__ import annotations

from enum import Enum

from quothwire.record import Record


class Fate(Enum):
    """The knowledge of a client about a batch that it sent."""

    STORED = "acknowledged, or found after a start"
    ABSENT = "refused, or not found after a start"
    UNKNOWN = "without an answer"


class _Batch:
    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        self.fate = Fate.UNKNOWN
        self.first = 0


class Account:
    """The batches that a client has sent to one topic, and their answers."""

    def __init__(self) -> None:
        self.seen = 0
        """The newest pointer that was acknowledged or read."""
        self._batches: list[_Batch] = []
        self._trimmed = 0
        self._doubtful = 0

    def sends(self, count: int, size: int) -> list[bytes]:
        """Return values for the next batch, which were not sent before."""
        number = len(self._batches)
        self._batches.append(_Batch([b"%d.%d." % (number, i) + b"-" * size for i in range(count)]))
        return self._batches[-1].values

    def hears(self, fate: Fate, first: int = 0, number: int = -1) -> None:
        """Note the fate of the newest batch, or of another one. first: its first pointer if it is stored."""
        last = self._batches[number]
        last.fate = fate
        if fate is Fate.STORED:
            assert first > self.seen, "a pointer below one that was seen"
            last.first = first
            self.seen = first + len(last.values) - 1

    @property
    def newest(self) -> int:
        """Return the number of the newest batch."""
        return len(self._batches) - 1

    def again(self, number: int) -> None:
        """Send a batch that is not stored once more."""
        self._batches[number].fate = Fate.UNKNOWN

    def was_not_written(self) -> None:
        """Note that the newest batch, if it has no answer, failed before its write."""
        if self._batches and self._batches[-1].fate is Fate.UNKNOWN:
            self.hears(Fate.ABSENT)

    def trims(self, before: int) -> None:
        """Allow that records below a pointer are gone, the oldest first."""
        self._trimmed = max(self._trimmed, before)

    def deletes(self) -> None:
        """Expect none of the batches so far."""
        for one in self._batches:
            one.fate = Fate.ABSENT
        self.seen = self._trimmed = self._doubtful = 0

    def may_delete(self) -> None:
        """Expect all of the batches so far, or none."""
        self._doubtful = len(self._batches)

    def check(self, records: list[Record], *, settle: bool = False) -> None:
        """Compare with all records of the topic. settle: they decide about batches without an answer."""
        pointers = [record.pointer for record in records]
        assert pointers == sorted({*pointers}), "out of order"
        found = {record.value: record.pointer for record in records}
        assert len(found) == len(records), "stored twice"
        doubtful = self._batches[: self._doubtful]
        if doubtful and not any(value in found for one in doubtful for value in one.values):
            for one in doubtful:
                one.fate = Fate.ABSENT
        if settle:
            self._doubtful = 0
        gone = [0]
        for one in self._batches:
            there = [found.pop(value) for value in one.values if value in found]
            acknowledged = list(range(one.first, one.first + len(one.values)))
            match one.fate:
                case Fate.STORED if not there:
                    assert acknowledged[-1] < self._trimmed, f"lost: {one.values[0][:20]!r} at {one.first}"
                    gone += acknowledged
                case Fate.STORED:
                    assert there == acknowledged, f"not as acknowledged: {one.values[0][:20]!r}"
                case Fate.ABSENT:
                    assert not there, f"refused, and there: {one.values[0][:20]!r}"
                case Fate.UNKNOWN if there:
                    assert there == list(range(there[0], there[0] + len(one.values))), "a part of a batch"
            if settle and one.fate is Fate.UNKNOWN:
                one.fate, one.first = (Fate.STORED, there[0]) if there else (Fate.ABSENT, 0)
        assert not found, f"not sent: {[*found]!r:.200}"
        assert not pointers or max(gone) < pointers[0], "not the oldest were trimmed"
        self.seen = max([self.seen, *pointers])
