"""Rates and quantiles between two states of counters."""

from __future__ import annotations

from typing import Any

import pytest

from quothweb.monitoring.history import (
    TOPIC_SAMPLES,
    TOPICS_MAX,
    History,
    TrafficRates,
    TrafficSample,
    durations_since,
    quantile,
    rates_between,
)

BUCKETS = [0.001, 0.01, 0.1]
BEFORE = {"records_in": 10, "bytes_in": 100, "records_out": 0, "bytes_out": 0}


@pytest.mark.parametrize(
    ("before", "after", "seconds", "expected"),
    [
        (BEFORE, {**BEFORE, "records_in": 30, "bytes_out": 8}, 2.0, TrafficRates(10, 0, 0, 4)),
        (BEFORE, BEFORE, 2.0, TrafficRates()),
        (BEFORE, {**BEFORE, "records_in": 5, "bytes_in": 500}, 2.0, TrafficRates()),
        (None, BEFORE, 2.0, TrafficRates()),
        (BEFORE, {**BEFORE, "records_in": 30}, 0.0, TrafficRates()),
        ({}, BEFORE, 10.0, TrafficRates(1, 10, 0, 0)),
    ],
    ids=[
        "more",
        "the same",
        "a broker that was restarted",
        "the first",
        "no time",
        "without counters before",
    ],
)
def test_rates_are_differences_by_time(
    before: Any, after: Any, seconds: float, expected: TrafficRates
) -> None:
    assert rates_between(before, after, seconds) == expected


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([0, 0, 0, 0], 0.5, None),
        ([10, 0, 0, 0], 0.5, 0.0005),
        ([0, 10, 0, 0], 0.5, 0.0055),
        ([5, 5, 0, 0], 0.5, 0.001),
        ([5, 5, 0, 0], 1.0, 0.01),
        ([0, 0, 0, 7], 0.99, 0.1),
        ([99, 0, 0, 1], 0.99, 0.001),
    ],
)
def test_a_quantile_lies_in_its_bucket(counts: list[int], share: float, expected: float | None) -> None:
    found = quantile(BUCKETS, counts, share)
    assert found == expected or (found is not None and abs(found - (expected or 0)) < 1e-9)


def test_durations_since_a_restart_are_all_there_are() -> None:
    assert durations_since({"counts": [1, 2, 0, 0]}, {"counts": [3, 2, 0, 1]}) == [2, 0, 0, 1]
    assert durations_since({"counts": [9, 9, 9, 9]}, {"counts": [3, 2, 0, 1]}) == [3, 2, 0, 1]
    assert durations_since(None, {"counts": [3, 2, 0, 1]}) == [3, 2, 0, 1]


def test_only_so_many_topics_and_samples_are_kept() -> None:
    history = History()
    for number in range(TOPICS_MAX + 5):
        history.add_topic(f"t{number}", TrafficSample(number, TrafficRates()))
    for number in range(TOPIC_SAMPLES + 5):
        history.add_topic("busy", TrafficSample(number, TrafficRates()))
    assert history.of_topic("t0") == []
    assert len(history.of_topic(f"t{TOPICS_MAX}")) == 1
    assert [sample.time for sample in history.of_topic("busy")] == [*range(5, TOPIC_SAMPLES + 5)]
    history.clear()
    assert history.of_topic("busy") == []
