"""A chart of the last minutes: one element, which the browser draws from plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from nicegui.element import Element

from quothweb.dashboard.markup import ASSETS
from quothweb.monitoring.history import TrafficSample

SPANS_S = (60, 300, 900)
"""Seconds that a chart shows: the least that has all samples, so that a young one is no line at its edge."""
POINTS_MAX = 225

SampleValue: TypeAlias = "Callable[[TrafficSample], float | None]"
RECORDS: Mapping[str, SampleValue] = {
    "in": lambda one: one.rates.records_in,
    "out": lambda one: one.rates.records_out,
}
BYTES: Mapping[str, SampleValue] = {
    "in": lambda one: one.rates.bytes_in,
    "out": lambda one: one.rates.bytes_out,
}
LATENCY: Mapping[str, SampleValue] = {
    "median": lambda one: one.publish_p50,
    "p99": lambda one: one.publish_p99,
}
"""The series of the charts."""


class LineChart(Element, component=ASSETS / "line_chart.js"):
    """A chart of the last minutes. unit: count, bytes or seconds. per: what follows a value, like /s."""

    def __init__(self, title: str, unit: str, per: str = "", empty: str = "Waiting for figures") -> None:
        super().__init__()
        self.props.update({"title": title, "unit": unit, "per": per, "empty": empty, "span": SPANS_S[0]})
        self.props.update({"times": [], "series": []})

    def show(self, samples: Sequence[TrafficSample], series: Mapping[str, SampleValue]) -> LineChart:
        """Show samples of the last quarter of an hour, by the name of each series."""
        newest = samples[-1].time if samples else 0
        recent = [one for one in samples if one.time > newest - SPANS_S[-1] * 1_000_000]
        length = (newest - recent[0].time) / 1e6 if recent else 0
        recent = recent[:: max(1, -(-len(recent) // POINTS_MAX))]
        times = [one.time for one in recent]
        values = [
            {"name": name, "values": [_rounded(value(one)) for one in recent]}
            for name, value in series.items()
        ]
        if self.props["times"] != times or self.props["series"] != values:
            shown = next((span for span in SPANS_S if span >= length), SPANS_S[-1])
            self.props.update({"times": times, "series": values, "span": shown})
        return self


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
