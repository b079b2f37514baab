"""Estimates of distinct keys: exact for few keys, within the documented bounds for many."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from quoth.spark.statistics.windows import EMPTY, KEPT, estimate, merged, sketch_of


def keys(begin: int, end: int) -> pa.Array:
    """Different keys."""
    return pa.array([b"key %d" % number for number in range(begin, end)], pa.binary())


@pytest.mark.parametrize("count", [0, 1, 2, KEPT - 1])
def test_few_keys_are_counted_exactly(count: int) -> None:
    assert estimate(sketch_of(keys(0, count))) == count
    twice = pa.concat_arrays([keys(0, count), keys(0, count), pa.nulls(3, pa.binary())])
    assert estimate(sketch_of(twice)) == count


@pytest.mark.parametrize("count", [KEPT, 5_000, 200_000])
def test_many_keys_are_counted_within_a_tenth(count: int) -> None:
    assert estimate(sketch_of(keys(0, count))) == pytest.approx(count, rel=0.1)


def test_merged_sketches_of_parts_equal_that_of_the_whole(rng: random.Random) -> None:
    whole, parts = sketch_of(keys(0, 10_000)), EMPTY
    for _ in range(5):
        cuts = sorted(rng.sample(range(10_000), 3))
        for begin, end in zip([0, *cuts], [*cuts, 10_000], strict=True):
            parts = merged(sketch_of(keys(max(0, begin - 50), end)), parts)
        assert np.array_equal(parts, whole)


def test_keys_of_a_slice_are_those_of_the_slice_alone() -> None:
    assert np.array_equal(sketch_of(keys(0, 100)[20:30]), sketch_of(keys(20, 30)))
