"""Tables and charts: one element each, which the browser draws from plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from nicegui.element import Element

from quothweb.dashboard.markup import ASSETS
from quothweb.monitoring.history import TrafficSample

Cell: TypeAlias = "str | dict[str, Any]"
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


class TableColumn(NamedTuple):
    """A column of a table. kind: a class of the style sheet for its cells."""

    name: str
    label: str
    numeric: bool = False
    sortable: bool = False
    kind: str = ""


class DataRow(NamedTuple):
    """A row of a table. cells: a text each, or a map of text, href, tone, note and buttons."""

    key: str
    cells: Sequence[Cell]
    tone: str = ""


class DataTable(Element, component=ASSETS / "data_table.js"):
    """A table. caption: its name for screen readers. empty: shown if there are no rows."""

    def __init__(self, caption: str, columns: Sequence[TableColumn], empty: str) -> None:
        super().__init__()
        self.props["caption"] = caption
        self.props["columns"] = [column._asdict() for column in columns]
        self.props["empty"] = empty
        self.props["rows"] = []

    def show(self, rows: Iterable[DataRow], *, sort: str = "", descending: bool = False) -> DataTable:
        """Show other rows. Does nothing if they are the same."""
        shown = {"rows": [row._asdict() for row in rows], "sort": sort, "descending": descending}
        for name, value in shown.items():
            if self.props.get(name) != value:
                self.props[name] = value
        return self

    def choose(self, key: str) -> None:
        """Mark a row."""
        self.props["chosen"] = key

    def on_sort(self, handler: Callable[[str], object]) -> DataTable:
        """Call a handler with the name of a column whose head was pressed."""
        self.on("sort", lambda event: handler(str(event.args)))
        return self

    def on_choose(self, handler: Callable[[str], object]) -> DataTable:
        """Call a handler with the key of a row that was chosen."""
        self.on("choose", lambda event: handler(str(event.args)))
        return self

    def on_action(self, handler: Callable[[str, str], object]) -> DataTable:
        """Call a handler with the name of a button, and the key of its row."""
        self.on("action", lambda event: handler(str(event.args[0]), str(event.args[1])))
        return self


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
