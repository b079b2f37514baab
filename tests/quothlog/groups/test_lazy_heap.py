"""The heap whose rows become invalid: in order, and bounded by what is valid."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from quothlog.groups.lazy_heap import LazyHeap


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_valid_items_come_in_order(pushed: list[tuple[int, bool]]) -> None:
    valid: set[int] = set()
    heap: LazyHeap[int] = LazyHeap(lambda _, item: item in valid)
    for item, (number, is_valid) in enumerate(pushed):
        if is_valid:
            valid.add(item)
        heap.push(number, item)
    expected = sorted((number, item) for item, (number, _) in enumerate(pushed) if item in valid)
    found = []
    while heap.first() is not None:
        found.append((heap.lowest(), heap.take()))
    assert found == expected
    assert heap.lowest() == math.inf


def test_invalid_rows_do_not_gather() -> None:
    valid: set[int] = set()
    heap: LazyHeap[int] = LazyHeap(lambda _, item: item in valid)
    for item in range(10_000):
        valid.add(item)
        heap.push(-item, item)
        valid.discard(item - 100)
        assert len(heap) <= 300
