"""Durations in buckets, and what a topic has done between two reports."""

from __future__ import annotations

import random
from itertools import pairwise

from quothd.metrics.histogram import BOUNDS, Histogram
from quothd.metrics.measures import Measures


def test_a_duration_is_in_the_first_bucket_that_reaches_up_to_it() -> None:
    assert all(low < high for low, high in pairwise(BOUNDS))
    for at, bound in enumerate(BOUNDS):
        for seconds, expected in ((bound, at), (bound * 1.000_001, at + 1)):
            found = Histogram()
            found.observe([seconds])
            assert found.counts.index(1) == expected
    assert not Histogram()


def test_sums_of_histograms_count_each_duration_once(seed: int) -> None:
    rng = random.Random(seed)
    durations = [rng.expovariate(100) for _ in range(1_000)]
    whole, first, second = Histogram(), Histogram(), Histogram()
    whole.observe(durations)
    first.observe(durations[:300])
    second.observe(durations[300:])
    first.add(second)
    assert first.counts == whole.counts
    assert abs(first.total - sum(durations)) < 1e-9
    shown = first.to_map()
    assert (sum(shown["counts"]), len(shown["counts"])) == (1_000, len(shown["buckets"]) + 1)


def test_measures_that_were_folded_and_those_that_were_not_count_alike() -> None:
    folded, plain = Measures(), Measures()
    for measures in (folded, plain):
        assert not measures
        for seconds in (0.001, 0.2, 40.0):
            measures.appends.append(seconds)
            if measures is folded:
                measures.fold()
            assert measures
        measures.syncs.append(0.3)
    shown = [{name: one.to_map() for name, one in measures.fold().items()} for measures in (folded, plain)]
    assert shown[0] == shown[1]
    assert sum(shown[0]["append"]["counts"]) == 3
    assert folded, "what was folded is not forgotten"
