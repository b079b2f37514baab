"""The rate limit of a replay, by a clock of the test."""

from __future__ import annotations

import pytest

from quoth.spark.replay.replayer import RateLimit

BEGAN = 1_767_323_045_000_000


class Clock:
    """A clock that only advances when the test or a wait moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reports: list[str] = []

    def pass_(self, seconds: float) -> None:
        self.now += seconds

    def limit(self, speed: float) -> RateLimit:
        return RateLimit(speed, self.reports.append, lambda: self.now, self.pass_)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("speed", [0.1, 1.0, 2.5, 3_600.0])
def test_rate_limit_lets_speed_seconds_of_original_time_pass_in_one_second(
    clock: Clock, speed: float
) -> None:
    limit, came = clock.limit(speed), []
    for seconds in (0, 1, 5, 5, 100):
        limit.await_(BEGAN + seconds * 1_000_000)
        came.append(clock.now)
    assert came == pytest.approx([0, 1 / speed, 5 / speed, 5 / speed, 100 / speed])
    assert (limit.behind, clock.reports, limit.tick) == (0.0, [], speed * 1_000_000)
    assert clock.limit(1e-9).tick == 1


def test_rate_limit_subtracts_spent_time_and_makes_up_delays(clock: Clock) -> None:
    limit = clock.limit(1)
    for passes, at, due in ((0, 0, 0.0), (0.75, 1, 1.0), (3, 2, 4.0), (0, 5, 5.0)):
        clock.pass_(passes)
        limit.await_(BEGAN + at * 1_000_000)
        assert clock.now == pytest.approx(due)


def test_delay_is_reported_above_a_limit_and_again_when_it_has_doubled(clock: Clock) -> None:
    limit = clock.limit(10)
    limit.await_(BEGAN)
    for late in (1.5, 2.5, 3.0, 4.0, 5.5):
        clock.now = 1 + late
        limit.await_(BEGAN + 10_000_000)
    assert limit.behind == pytest.approx(5.5)
    assert clock.reports == [
        "it cannot keep up: 2.5 s behind a speed of 10", "it cannot keep up: 5.5 s behind a speed of 10"
    ]  # fmt: skip
