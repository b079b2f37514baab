"""The list of topics: searched, sorted and cut into pages by the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from nicegui import ui

from quothweb.dashboard import figures
from quothweb.dashboard.markup import tag
from quothweb.dashboard.tables import DataRow, DataTable, TableColumn
from quothweb.dashboard.topics.topic_order import COLUMNS, DESCENDING, TopicOrders, worst_lag
from quothweb.dashboard.view import PageView
from quothweb.monitoring.observer import BrokerObserver

SHOWN = 50
SEARCH_CHARACTERS_MAX = 200
TABLE = (
    TableColumn("name", "Topic", sortable=True),
    TableColumn("records", "Records", numeric=True, sortable=True),
    TableColumn("bytes", "Bytes", numeric=True, sortable=True),
    TableColumn("rate", "Records in", numeric=True, sortable=True),
    TableColumn("newest", "Newest", numeric=True, sortable=True),
    TableColumn("oldest", "Oldest", numeric=True, sortable=True),
    TableColumn("lag", "Groups, worst lag", sortable=True),
    TableColumn("durability", "Durability"),
    TableColumn("state", "State", sortable=True),
)
_orders: WeakKeyDictionary[BrokerObserver, TopicOrders] = WeakKeyDictionary()


def orders_of(observer: BrokerObserver) -> TopicOrders:
    """Return the orders that all viewers of a broker share."""
    if observer not in _orders:
        _orders[observer] = TopicOrders(observer)
    return _orders[observer]


async def topic_list(view: PageView) -> None:
    """Build the page."""
    tag("h1", "Topics")
    TopicTable(view)


class TopicTable:
    """The table of one viewer, with its search, its order and its page. They are in the URL, too."""

    def __init__(self, view: PageView) -> None:
        self._view = view
        self._search = view.query("search")[:SEARCH_CHARACTERS_MAX]
        self._sort = view.query("sort") if view.query("sort") in COLUMNS else "name"
        self._descending = view.query("down", "1" if self._sort in DESCENDING else "0") == "1"
        number = view.query("page", "1")
        self._page = max(1, int(number)) if number.isdecimal() and len(number) < 9 else 1
        self._search_form()
        self._table = DataTable("Topics", TABLE, "No topic has such a name.").on_sort(self._sort_by)
        with tag("nav", classes="row", aria_label="Pages of the table"):
            self._back = tag("button", "Previous", type="button").on("click", lambda: self._go(-1))
            self._place = tag("span", classes="muted")
            self._next = tag("button", "Next", type="button").on("click", lambda: self._go(1))
        view.live(self._show)

    def _search_form(self) -> None:
        with tag("form", classes="row end", role="search", method="get") as form:
            with tag("label", "Name contains"):
                field = tag("input", type="search", name="search", value=self._search, autocomplete="off")
            tag("button", "Search")
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
        if column in COLUMNS:
            self._descending = not self._descending if column == self._sort else column in DESCENDING
            self._sort, self._page = column, 1
            self._show_other()

    def _go(self, pages: int) -> None:
        self._page += pages
        self._show_other()

    def _show_other(self) -> None:
        """Show what was asked for, and note it in the URL."""
        self._show()
        query = {
            "search": self._search,
            "sort": self._sort if self._sort != "name" else "",
            "down": str(int(self._descending)) if self._descending != (self._sort in DESCENDING) else "",
            "page": self._page if self._page > 1 else "",
        }
        ui.navigate.history.replace(self._view.url("topics", **query))

    def _show(self) -> None:
        observer = self._view.observer
        names = orders_of(observer).names(self._sort, self._search, descending=self._descending)
        pages = max(1, -(-len(names) // SHOWN))
        self._page = min(max(1, self._page), pages)
        begin = (self._page - 1) * SHOWN
        shown = names[begin : begin + SHOWN]
        rows = [(name, observer.topics[name]) for name in shown if name in observer.topics]
        self._table.show(
            [self._row(name, row) for name, row in rows], sort=self._sort, descending=self._descending
        )
        self._back.props["disabled"] = self._page <= 1
        self._next.props["disabled"] = self._page >= pages
        end = begin + len(shown)
        self._place.set_text(f"{begin + 1:,} to {end:,} of {len(names):,}" if names else "")
        listing = "" if observer.is_complete or observer.failure else " so far, the list is being read"
        self._count.set_text(f"{len(names):,} topics{listing}")

    def _row(self, name: str, row: Mapping[str, Any]) -> DataRow:
        now, view = self._view.now, self._view
        rates = view.observer.rates.get(name)
        groups = row.get("groups", ())
        state, tone = state_of(row)
        return DataRow(
            name,
            (
                {"text": name, "href": view.topic_url(name)},
                figures.count(row.get("count")),
                figures.size(row.get("bytes")),
                figures.rate(rates.records_in) if rates else "0/s" if "count" in row else figures.NONE,
                figures.age(row.get("last", 0), now),
                figures.age(row.get("first", 0), now),
                f"{len(groups)}, {figures.span(worst_lag(row, now))}" if groups else figures.NONE,
                str(row.get("durability", figures.NONE)),
                {"text": state, "tone": tone},
            ),
        )


def state_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state of a topic in a word, and its tone."""
    if row.get("problem"):
        return "failed", "critical"
    if "count" not in row:
        return "not opened yet", "muted"
    return ("active", "good") if row.get("open") else ("hibernates", "muted")
