"""The orders of all topics, sorted by the columns of their table.

Sorting a hundred thousand topics takes a tenth of a second. So an order is kept for some time, which is so
long that sorting takes a small part of it, and all viewers share it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from quoth.monitoring.alarms import lag_seconds
from quothweb.monitoring.observer import BrokerObserver

KEPT = 20
"""A sorted order is kept for so many times the time that sorting has taken."""
ORDERS_MAX = 6
COLUMNS = ("name", "records", "bytes", "rate", "newest", "oldest", "lag", "state")
DESCENDING = frozenset(("records", "bytes", "rate", "newest", "lag", "state"))
"""Columns that begin with the largest value when they are chosen."""


def worst_lag(row: Mapping[str, Any], now: int) -> float:
    """Return the lag in seconds of the group of a topic that is furthest behind."""
    return max((lag_seconds(group, now) for group in row.get("groups", ())), default=0.0)


class TopicOrders:
    """The names of all topics in several orders. Belongs to the event loop."""

    def __init__(self, observer: BrokerObserver) -> None:
        self._observer = observer
        self._orders: OrderedDict[tuple[str, bool], tuple[float, int, list[str]]] = OrderedDict()
        self._found: tuple[list[str], str, list[str]] = ([], "", [])

    def names(self, column: str, search: str = "", *, descending: bool = False) -> list[str]:
        """Return the names of the topics that have a text in their name, in the order of a column."""
        order = self._order(column, descending)
        if not search:
            return order
        of, for_text, found = self._found
        if of is not order or for_text != search:
            wanted = search.casefold()
            found = [name for name in order if wanted in name.casefold()]
            self._found = (order, search, found)
        return found

    def _order(self, column: str, descending: bool) -> list[str]:
        key = (column, descending)
        until, rounds, order = self._orders.get(key, (0.0, -1, []))
        began = time.monotonic()
        topics = self._observer.topics
        if rounds == self._observer.rounds or (began < until and len(order) == len(topics)):
            return order
        value = self._values()[column]
        found = sorted(topics)
        if column != "name" or descending:
            found.sort(key=value, reverse=descending)
        took = time.monotonic() - began
        self._orders[key] = (began + KEPT * took, self._observer.rounds, found)
        self._orders.move_to_end(key)
        if len(self._orders) > ORDERS_MAX:
            self._orders.popitem(last=False)
        return found

    def _values(self) -> dict[str, Callable[[str], Any]]:
        """Return what a topic is sorted by, for each column."""
        observer = self._observer
        topics, rates = observer.topics, observer.rates
        now = observer.metrics.time if observer.metrics is not None else 0
        return {
            "name": lambda name: name,
            "records": lambda name: topics[name].get("count", -1),
            "bytes": lambda name: topics[name].get("bytes", -1),
            "rate": lambda name: rates[name].records_in if name in rates else 0.0,
            "newest": lambda name: topics[name].get("last", -1),
            "oldest": lambda name: topics[name].get("first") or 2**62,
            "lag": lambda name: worst_lag(topics[name], now),
            "state": lambda name: (bool(topics[name].get("problem")), topics[name].get("open", False)),
        }
