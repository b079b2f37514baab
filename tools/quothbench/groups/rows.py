"""The rows of `quoth bench group`: a figure of Quoth, and the one beside it if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quothbench.figures import NO_GOAL, Goal, spreads
from quothbench.report import Report, ReportColumn, count, factor, goal_columns, number, spread

COLUMNS = (
    ReportColumn("figure", "figure", width=32),
    ReportColumn("unit", "unit", width=9),
    ReportColumn("how_many", "how many", count),
    ReportColumn("beside", "beside", width=24),
    ReportColumn("other", "other", number, 10),
    ReportColumn("quoth", "quoth", number, 10),
    ReportColumn("ratio", "ratio", spread, 17),
    *goal_columns(factor, 5),
    ReportColumn("problem", "problem", width=0),
)


class GroupRows(NamedTuple):
    """Prints the rows of a report."""

    report: Report

    def compare(
        self,
        figure: str,
        unit: str,
        how_many: int,
        beside: str,
        pairs: Sequence[tuple[float, float]],
        goal: Goal = NO_GOAL,
    ) -> None:
        """Print the medians of another system, or way, and of Quoth, and their ratio."""
        other, quoth, ratios = spreads(pairs)
        self.report.row(figure, unit, how_many, beside, other.median, quoth.median, ratios, *goal, None)

    def single(self, figure: str, unit: str, how_many: int, quoth: float | None) -> None:
        """Print a figure that has none beside it; None if it is unknown here."""
        self.report.row(figure, unit, how_many, None, None, quoth, None, *NO_GOAL, None)

    def failed(self, figure: str, unit: str, beside: str | None, problem: str, goal: Goal = NO_GOAL) -> None:
        """Print that a figure could not be measured."""
        self.report.row(figure, unit, None, beside, None, None, None, *goal, problem)
