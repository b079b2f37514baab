"""Figures: quantiles, spreads, and the order in which things are measured in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

Sample = TypeVar("Sample")

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Goal(NamedTuple):
    """The required and the desired value of a figure. Less is better for times and memory."""

    required: float | None = None
    aim: float | None = None


NO_GOAL = Goal()


class Spread(NamedTuple):
    """The median, the smallest and the largest of some measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, measured: Sequence[float]) -> Spread:
        """Return the spread of at least one measurement."""
        return cls(median(measured), min(measured), max(measured))

    @classmethod
    def of_ratios(cls, pairs: Sequence[tuple[float, float]]) -> Spread:
        """Return the spread of the second figure of each pair divided by the first one."""
        return cls.of([other / one for one, other in pairs])


def spreads(pairs: Sequence[tuple[float, float]]) -> tuple[Spread, Spread, Spread]:
    """Return the spreads of the first figures of pairs, of the second ones, and of the ratios."""
    one, other = zip(*pairs, strict=True)
    return Spread.of(one), Spread.of(other), Spread.of_ratios(pairs)


def quantiles(figures: Sequence[float]) -> dict[str, float]:
    """Return the smallest figures that a share of `QUANTILES` does not exceed."""
    ascending = sorted(figures)
    return {
        name: ascending[max(0, math.ceil(share * len(ascending)) - 1)] for name, share in QUANTILES.items()
    }


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
    """Measure two things in turn, as `rotate` does."""
    return [(sample, another) for sample, another in rotate((one, other), pairs)]
