"""Figures: what a run of measurements comes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

Sample = TypeVar("Sample")

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Goal(NamedTuple):
    """What a figure has to reach: a ratio, or bytes. Of times and of memory the less is better."""

    required: float | None = None
    aim: float | None = None


class Spread(NamedTuple):
    """The median of some measurements, and the smallest and largest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, measured: Sequence[float]) -> Spread:
        """The spread of at least one measurement."""
        return cls(median(measured), min(measured), max(measured))


def quantile(ascending: Sequence[float], share: float) -> float:
    """The smallest of ascending figures that so large a share of them does not exceed; NaN of none."""
    if not ascending:
        return math.nan
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def quantiles(figures: Sequence[float]) -> dict[str, float]:
    """The quantiles that a table shows."""
    ascending = sorted(figures)
    return {name: quantile(ascending, share) for name, share in QUANTILES.items()}


def rotate(several: Sequence[Callable[[], Sample]], rounds: int) -> list[list[Sample]]:
    """Measure several things in turn, each round begun by another one, after a round that does not count."""
    measured = []
    for number in range(rounds + 1):
        first = number % len(several)
        rotated = [one() for one in (*several[first:], *several[:first])]
        measured.append([*rotated[len(several) - first :], *rotated[: len(several) - first]])
    return measured[1:]


def alternate(
    one: Callable[[], Sample], other: Callable[[], Sample], pairs: int
) -> list[tuple[Sample, Sample]]:
    """`rotate`, for two."""
    return [(sample, another) for sample, another in rotate((one, other), pairs)]
