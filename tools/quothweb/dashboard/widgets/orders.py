"""Long lists in several orders, sorted by the columns of their table.

Sorting a hundred thousand topics takes a tenth of a second. So an order is kept for some time, which is so
long that sorting takes a small part of it, and all viewers share it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from quothweb.monitoring.observer import BrokerObserver

K = TypeVar("K")

KEPT = 20
"""A sorted order is kept for so many times the time that sorting has taken."""
ORDERS_MAX = 6


class SortedOrders(Generic[K]):
    """The keys of a long list in several orders. Belongs to the event loop.

    keys: returns all of them, in their natural order. values: by the column, what a key is sorted by; a
    column that is not there keeps the natural order. text: returns what a search looks in.
    """

    def __init__(
        self,
        observer: BrokerObserver,
        keys: Callable[[], list[K]],
        values: Mapping[str, Callable[[K], Any]],
        text: Callable[[K], str],
    ) -> None:
        self._observer = observer
        self._keys = keys
        self._values = values
        self._text = text
        self._orders: OrderedDict[tuple[str, bool], tuple[float, int, list[K]]] = OrderedDict()
        self._found: tuple[Sequence[K], str, Sequence[K]] = ([], "", [])

    def find(self, column: str, search: str = "", *, descending: bool = False) -> Sequence[K]:
        """Return the keys that have a text, in the order of a column."""
        order = self._order(column, descending)
        if not search:
            return order
        of, for_text, found = self._found
        if of is not order or for_text != search:
            wanted = search.casefold()
            found = [key for key in order if wanted in self._text(key).casefold()]
            self._found = (order, search, found)
        return found

    def _order(self, column: str, descending: bool) -> list[K]:
        key = (column, descending)
        until, rounds, order = self._orders.get(key, (0.0, -1, []))
        began = time.monotonic()
        if rounds == self._observer.rounds or began < until:
            return order
        found = self._keys()
        if column in self._values:
            found.sort(key=self._values[column], reverse=descending)
        elif descending:
            found.reverse()
        took = time.monotonic() - began
        self._orders[key] = (began + KEPT * took, self._observer.rounds, found)
        self._orders.move_to_end(key)
        if len(self._orders) > ORDERS_MAX:
            self._orders.popitem(last=False)
        return found
