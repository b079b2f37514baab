"""A table: one element, which the browser draws from plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from nicegui.element import Element

from quothweb.dashboard.markup import ASSETS

Cell: TypeAlias = "str | dict[str, Any]"


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
