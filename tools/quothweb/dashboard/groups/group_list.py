"""The list of all groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from quoth.monitoring.alarms import lag_seconds
from quothweb.dashboard import figures
from quothweb.dashboard.markup import tag
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import Cell, DataRow, TableColumn
from quothweb.dashboard.widgets.orders import SortedOrders
from quothweb.dashboard.widgets.paged_table import PagedTable, TablePlan
from quothweb.monitoring.observer import BrokerObserver

COLUMNS = (
    TableColumn("group", "Group", sortable=True),
    TableColumn("topic", "Topic", sortable=True),
    TableColumn("records", "Records behind", numeric=True, sortable=True),
    TableColumn("lag", "Lag", numeric=True, sortable=True),
    TableColumn("pending", "Pending", numeric=True, sortable=True),
    TableColumn("flight", "In flight", numeric=True, sortable=True),
    TableColumn("dead", "Dead", numeric=True, sortable=True),
    TableColumn("idle", "Idle", numeric=True, sortable=True),
    TableColumn("state", "State", sortable=True, kind="text"),
)
DESCENDING = frozenset(("records", "lag", "pending", "flight", "dead", "idle", "state"))


class GroupKey(NamedTuple):
    """A group of a topic."""

    topic: str
    group: str


_orders: WeakKeyDictionary[BrokerObserver, SortedOrders[GroupKey]] = WeakKeyDictionary()


def group_row(observer: BrokerObserver, key: GroupKey) -> Mapping[str, Any] | None:
    """Return what is known of a group; None for one that is not known."""
    groups = observer.topics.get(key.topic, {}).get("groups", ())
    return next((one for one in groups if one["group"] == key.group), None)


def group_orders(observer: BrokerObserver) -> SortedOrders[GroupKey]:
    """Return the orders of the groups of a broker, which all viewers share."""

    def keys() -> list[GroupKey]:
        return sorted(
            GroupKey(name, group["group"])
            for name, row in observer.topics.items()
            for group in row.get("groups", ())
        )

    def by(name: str) -> Any:
        return lambda key: (group_row(observer, key) or {}).get(name, 0)

    def lag(key: GroupKey) -> float:
        row = group_row(observer, key)
        return 0.0 if row is None or observer.metrics is None else lag_seconds(row, observer.metrics.time)

    if observer not in _orders:
        values = {
            "group": lambda key: key.group,
            "records": by("lag"),
            "lag": lag,
            "pending": by("pending"),
            "flight": by("in_flight"),
            "dead": by("dead"),
            "idle": lambda key: -by("used")(key),
            "state": lambda key: (bool(by("problem")(key)), bool(by("paused")(key))),
        }
        _orders[observer] = SortedOrders(observer, keys, values, lambda key: f"{key.group} {key.topic}")
    return _orders[observer]


async def group_list(view: PageView) -> None:
    """Build the page."""
    tag("h1", "Groups")

    def row(key: GroupKey) -> DataRow | None:
        found = group_row(view.observer, key)
        return None if found is None else _row(view, key, found)

    plan = TablePlan("groups", "groups", "Group or topic contains", COLUMNS, "lag", DESCENDING, row)
    PagedTable(view, plan, group_orders(view.observer))


def state_cell(group: Mapping[str, Any]) -> Cell:
    """Return the state of a group in a word, with its problem."""
    if group.get("problem"):
        return {"text": "problem", "tone": "critical", "note": str(group["problem"])}
    return {"text": "paused", "tone": "warning"} if group.get("paused") else {"text": "runs", "tone": "good"}


def _row(view: PageView, key: GroupKey, group: Mapping[str, Any]) -> DataRow:
    return DataRow(
        f"{key.topic}/{key.group}",
        (
            {"text": printable(key.group), "href": view.topic_url(key.topic, "group", key.group)},
            {"text": printable(key.topic), "href": view.topic_url(key.topic)},
            figures.count(group["lag"]),
            figures.span(lag_seconds(group, view.now)),
            figures.count(group["pending"]),
            figures.count(group["in_flight"]),
            figures.count(group["dead"]),
            figures.age(group["used"], view.now),
            state_cell(group),
        ),
    )
