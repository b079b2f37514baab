"""Segments of Poe that overlap are merged by pointer, and no others are opened at the same time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from quothlog.appendix import merge
from quothlog.appendix.merge import merged
from quothlog.importing.source import ImportedRecord


class Segments:
    """Segments with these pointers; the value of a record names its segment. most: open at the same time."""

    def __init__(self, *segments: list[int]) -> None:
        self.most = 0
        self._open: set[int] = set()
        self._segments = segments

    def merged(self) -> list[tuple[int | None, bytes]]:
        rows = (self._read(number, pointers) for number, pointers in enumerate(self._segments))
        return [(one.pointer, one.value) for one in merged(rows)]

    def _read(self, number: int, pointers: list[int]) -> Iterator[ImportedRecord]:
        self._open.add(number)
        for row, pointer in enumerate(pointers):
            self.most = max(self.most, len(self._open))
            yield ImportedRecord(pointer, b"%d" % number, Path(), row)
        self._open.remove(number)


def test_segments_that_follow_each_other_are_read_one_by_one() -> None:
    """The next one is opened for the sake of its first pointer."""
    segments = Segments([1, 2], [], [3, 4], [], [], [5], [6, 7])
    assert segments.merged() == [
        (1, b"0"), (2, b"0"), (3, b"2"), (4, b"2"), (5, b"5"), (6, b"6"), (7, b"6")
    ]  # fmt: skip
    assert segments.most == 2


def test_puts_to_the_older_segment_after_a_roll_come_in_their_place() -> None:
    assert Segments([1, 5, 7, 12], [4, 6, 8, 9], [10, 11, 13]).merged() == [
        (1, b"0"), (4, b"1"), (5, b"0"), (6, b"1"), (7, b"0"), (8, b"1"), (9, b"1"),
        (10, b"2"), (11, b"2"), (12, b"0"), (13, b"2"),
    ]  # fmt: skip


def test_any_segments_that_rise_are_merged_in_the_order_of_their_pointers(rng: random.Random) -> None:
    for _ in range(200):
        pointers = sorted(rng.sample(range(1, 200), rng.randrange(40)))
        parts = [[one for one in pointers if one % merge.MERGED_MAX == row] for row in range(4)]
        segments = Segments(*sorted(parts))
        assert [pointer for pointer, _ in segments.merged()] == pointers
        assert segments.most <= merge.MERGED_MAX + 1


def test_of_equal_pointers_that_of_the_older_segment_comes_first() -> None:
    assert Segments([1, 2], [2, 3]).merged() == [(1, b"0"), (2, b"0"), (2, b"1"), (3, b"1")]


def test_more_segments_than_are_merged_at_once_lose_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MERGED_MAX", 2)
    segments = Segments([1, 9], [2, 8], [3, 7], [4, 6])
    found = segments.merged()
    assert found[:2] == [(1, b"0"), (2, b"1")]
    assert sorted(found) == [
        (1, b"0"), (2, b"1"), (3, b"2"), (4, b"3"), (6, b"3"), (7, b"2"), (8, b"1"), (9, b"0")
    ]  # fmt: skip
    assert segments.most <= 3


def test_records_of_a_segment_keep_their_order() -> None:
    """Pointers that do not rise are no reason to sort, and a wrong one far above holds nothing up."""
    assert [value for _, value in Segments([1, 3, 2, 3, 0, 5], [6, 7]).merged()] == [b"0"] * 6 + [b"1"] * 2
    assert Segments([1, 900, 2, 3], [4, 5]).merged() == [
        (1, b"0"), (900, b"0"), (2, b"0"), (3, b"0"), (4, b"1"), (5, b"1")
    ]  # fmt: skip
