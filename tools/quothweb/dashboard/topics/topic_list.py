"""The list of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from quoth.monitoring.alarms import lag_seconds
from quothweb.dashboard import figures
from quothweb.dashboard.markup import tag
from quothweb.dashboard.records.commands import command, copy_buttons, program
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, TableColumn
from quothweb.dashboard.widgets.orders import SortedOrders
from quothweb.dashboard.widgets.paged_table import PagedTable, TablePlan
from quothweb.monitoring.observer import BrokerObserver

COLUMNS = (
    TableColumn("name", "Topic", sortable=True),
    TableColumn("records", "Records", numeric=True, sortable=True),
    TableColumn("bytes", "Bytes", numeric=True, sortable=True),
    TableColumn("rate", "Records in", numeric=True, sortable=True),
    TableColumn("newest", "Newest", numeric=True, sortable=True),
    TableColumn("oldest", "Oldest", numeric=True, sortable=True),
    TableColumn("lag", "Groups, lag", sortable=True),
    TableColumn("durability", "Durability"),
    TableColumn("state", "State", sortable=True),
)
DESCENDING = frozenset(("records", "bytes", "rate", "newest", "lag", "state"))
_orders: WeakKeyDictionary[BrokerObserver, SortedOrders[str]] = WeakKeyDictionary()


def topic_orders(observer: BrokerObserver) -> SortedOrders[str]:
    """Return the orders of the topics of a broker, which all viewers share."""
    if observer not in _orders:
        _orders[observer] = SortedOrders(
            observer,
            observer.names,
            {
                "records": lambda name: observer.topics[name].get("count", -1),
                "bytes": lambda name: observer.topics[name].get("bytes", -1),
                "rate": lambda name: observer.rates[name].records_in if name in observer.rates else 0.0,
                "newest": lambda name: observer.topics[name].get("last", -1),
                "oldest": lambda name: observer.topics[name].get("first") or 2**62,
                "lag": lambda name: worst_lag(observer.topics[name], _now(observer)),
                "state": lambda name: _rank(observer.topics[name]),
            },
            str,
        )
    return _orders[observer]


async def topic_list(view: PageView) -> None:
    """Build the page."""
    tag("h1", "Topics")

    def row(name: str) -> DataRow | None:
        found = view.observer.topics.get(name)
        return None if found is None else _row(view, name, found)

    plan = TablePlan("topics", "topics", "Name contains", COLUMNS, "name", DESCENDING, row)
    PagedTable(view, plan, topic_orders(view.observer))
    url = view.config.url
    copy_buttons(command(url, "topic", "ls"), program(url, "print(client.topics())"))


def worst_lag(row: Mapping[str, Any], now: int) -> float:
    """Return the lag in seconds of the group of a topic that is furthest behind."""
    return max((lag_seconds(group, now) for group in row.get("groups", ())), default=0.0)


def state_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state of a topic in a word, and its tone."""
    if row.get("problem"):
        return "failed", "critical"
    if "count" not in row:
        return "not opened yet", "muted"
    return ("active", "good") if row.get("open") else ("hibernates", "muted")


def _rank(row: Mapping[str, Any]) -> tuple[bool, bool, bool]:
    return bool(row.get("problem")), bool(row.get("open")), "count" in row


def _now(observer: BrokerObserver) -> int:
    return observer.metrics.time if observer.metrics is not None else 0


def _row(view: PageView, name: str, row: Mapping[str, Any]) -> DataRow:
    rates = view.observer.rates.get(name)
    groups = row.get("groups", ())
    state, tone = state_of(row)
    return DataRow(
        name,
        (
            {"text": printable(name), "href": view.topic_url(name)},
            figures.count(row.get("count")),
            figures.size(row.get("bytes")),
            figures.rate(rates.records_in) if rates else "0/s" if "count" in row else figures.NONE,
            figures.age(row.get("last", 0), view.now),
            figures.age(row.get("first", 0), view.now),
            f"{len(groups)}, {figures.span(worst_lag(row, view.now))}" if groups else figures.NONE,
            str(row.get("durability", figures.NONE)),
            {"text": state, "tone": tone},
        ),
    )
