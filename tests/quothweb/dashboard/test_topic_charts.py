"""The charts of a topic: where it has not changed, it had no records."""

from __future__ import annotations

import pytest

from quothweb.dashboard.topics.topic_page import without_gaps
from quothweb.monitoring.history import TrafficRates, TrafficSample

SECOND = 1_000_000


def sample(seconds: float, records: float = 7.0) -> TrafficSample:
    """Return a sample at a time."""
    return TrafficSample(round(seconds * SECOND), TrafficRates(records_in=records))


@pytest.mark.parametrize(
    ("times", "now", "expected"),
    [
        ([], 10, []),
        ([2, 4, 6], 6, [(2, 7), (4, 7), (6, 7)]),
        ([2, 4.5, 6], 6, [(2, 7), (4.5, 7), (6, 7)]),
        ([2, 20], 20, [(2, 7), (4, 0), (18, 0), (20, 7)]),
        ([2], 60, [(2, 7), (4, 0), (60, 0)]),
        ([2, 4], 6, [(2, 7), (4, 7), (6, 0)]),
    ],
)
def test_time_without_samples_is_silence(
    times: list[float], now: float, expected: list[tuple[float, float]]
) -> None:
    found = without_gaps([sample(time) for time in times], round(now * SECOND), 2.0)
    assert [(one.time / SECOND, one.rates.records_in) for one in found] == expected
