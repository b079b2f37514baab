"""A long table that the server searches, sorts and cuts into pages: a browser never gets all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nicegui import ui

from quothweb.dashboard.markup import tag
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothweb.dashboard.widgets.orders import SortedOrders

K = TypeVar("K")

SHOWN = 50
SEARCH_CHARACTERS_MAX = 200


@dataclass(frozen=True)
class TablePlan(Generic[K]):
    """The content of a table. noun: of its rows, in the plural. path: of its page.

    first: the column by which it is sorted in the beginning. descending: columns that begin with the largest
    value. row: makes the row of a key, None for a key that is there no more.
    """

    noun: str
    path: str
    search: str
    columns: Sequence[TableColumn]
    first: str
    descending: frozenset[str]
    row: Callable[[K], DataRow | None]

    def is_sortable(self, column: str) -> bool:
        """Return True for a column that sorts."""
        return any(one.name == column and one.sortable for one in self.columns)


class PagedTable(Generic[K]):
    """The table of one viewer, with its search, its order and its page. They are in the URL, too."""

    def __init__(self, view: PageView, plan: TablePlan[K], orders: SortedOrders[K]) -> None:
        self._view = view
        self._plan = plan
        self._orders = orders
        self._search = view.query("search")[:SEARCH_CHARACTERS_MAX]
        self._sort = view.query("sort") if plan.is_sortable(view.query("sort")) else plan.first
        self._descending = view.query("down", str(int(self._sort in plan.descending))) == "1"
        number = view.query("page", "1")
        self._page = max(1, int(number)) if number.isdecimal() and len(number) < 9 else 1
        self._search_form()
        empty = f"There are no such {plan.noun}."
        self._table = DataTable(plan.noun.capitalize(), plan.columns, empty).on_sort(self._sort_by)
        with tag("nav", classes="row", aria_label="Pages of the table"):
            self._back = tag("button", "Previous", type="button").on("click", lambda: self._go(-1))
            self._place = tag("span", classes="muted")
            self._next = tag("button", "Next", type="button").on("click", lambda: self._go(1))
        view.live(self._show)

    def _search_form(self) -> None:
        with tag("form", classes="row end", role="search", method="get") as form:
            with tag("label", self._plan.search):
                field = tag("input", type="search", name="search", value=self._search, autocomplete="off")
            self._count = tag("span", classes="muted", role="status")
        form.on("submit", js_handler="(event) => event.preventDefault()")
        field.on(
            "input",
            lambda event: self._search_for(str(event.args)),
            js_handler="(event) => emit(event.target.value)",
            throttle=0.25,
            leading_events=False,
        )

    def _search_for(self, text: str) -> None:
        self._search, self._page = text[:SEARCH_CHARACTERS_MAX].strip(), 1
        self._show_other()

    def _sort_by(self, column: str) -> None:
        if self._plan.is_sortable(column):
            begins_down = column in self._plan.descending
            self._descending = not self._descending if column == self._sort else begins_down
            self._sort, self._page = column, 1
            self._show_other()

    def _go(self, pages: int) -> None:
        self._page += pages
        self._show_other()

    def _show_other(self) -> None:
        """Show what was asked for, and note it in the URL."""
        self._show()
        begins_down = self._sort in self._plan.descending
        query = {
            "search": self._search,
            "sort": self._sort if self._sort != self._plan.first else "",
            "down": str(int(self._descending)) if self._descending != begins_down else "",
            "page": self._page if self._page > 1 else "",
        }
        ui.navigate.history.replace(self._view.url(self._plan.path, **query))

    def _show(self) -> None:
        observer = self._view.observer
        keys = self._orders.find(self._sort, self._search, descending=self._descending)
        pages = max(1, -(-len(keys) // SHOWN))
        self._page = min(max(1, self._page), pages)
        begin = (self._page - 1) * SHOWN
        shown = keys[begin : begin + SHOWN]
        rows = [row for row in map(self._plan.row, shown) if row is not None]
        self._table.show(rows, sort=self._sort, descending=self._descending)
        self._back.props["disabled"] = self._page <= 1
        self._next.props["disabled"] = self._page >= pages
        self._place.set_text(f"{begin + 1:,} to {begin + len(shown):,} of {len(keys):,}" if keys else "")
        listing = "" if observer.is_complete or observer.failure else " so far, the list is being read"
        self._count.set_text(f"{len(keys):,} {self._plan.noun}{listing}")
