"""Keeps what is due at a time, and the fetches that wait for a newer record."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import count, islice
from typing import Generic, TypeVar

from quothd.access.access import Access
from quothd.access.quota import Quota
from quothd.config.config import Config
from quothd.connections.connection import Connection
from quothd.requests.events import GroupReady
from quothd.requests.pending_request import PendingRequest
from quothwire.errors import error

Item = TypeVar("Item")
_SLACK = 16
LEFT_MAX = 500
"""Fetches of a connection that has ended are dropped in slices of so many, which take 2 ms."""


class Schedule(Generic[Item]):
    """Items with a due each. Those that are due later are not looked at.

    Rows of a heap whose due is not that of their item any more stay until they are too many.
    """

    __slots__ = ("_dues", "_numbers", "_rows")

    def __init__(self) -> None:
        self._dues: dict[Item, float] = {}
        self._rows: list[tuple[float, int, Item]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._dues)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._dues)

    def plan(self, item: Item, due: float) -> None:
        """Let an item be due at another time; never, if that is infinite."""
        if self._dues.get(item) == due:
            return
        if due == math.inf:
            self.cancel(item)
            return
        self._dues[item] = due
        heapq.heappush(self._rows, (due, next(self._numbers), item))
        if len(self._rows) > 2 * len(self._dues) + _SLACK:
            self._rows = [row for row in self._rows if self._dues.get(row[2]) == row[0]]
            heapq.heapify(self._rows)

    def plan_earlier(self, item: Item, due: float) -> None:
        """Let an item be due at a time, unless it is due before."""
        if due < self._dues.get(item, math.inf):
            self.plan(item, due)

    def cancel(self, item: Item) -> None:
        """Let an item not be due."""
        self._dues.pop(item, None)

    def take_due(self, now: float, most: float = math.inf) -> list[Item]:
        """Remove and return the items that are due, those with the lowest due first."""
        taken: list[Item] = []
        while self._rows and self._rows[0][0] <= now and len(taken) < most:
            due, _, item = heapq.heappop(self._rows)
            if self._dues.get(item) == due:
                del self._dues[item]
                taken.append(item)
        return taken

    def next_due(self) -> float:
        """Return the lowest due, infinity without an item."""
        while self._rows and self._dues.get(self._rows[0][2]) != self._rows[0][0]:
            heapq.heappop(self._rows)
        return self._rows[0][0] if self._rows else math.inf


class PendingFetches:
    """The fetches that wait, by topic and cursor, and by deadline. Owned by the front end's thread.

    One costs about 0.8 KB and no thread; it keeps no topic awake. It ends when something newer is announced,
    when its topic goes, or at its deadline; those that wait for something else are not looked at, nor those
    for synced records while records are only written. Fetches for a group wait in a row: one of them goes on
    when the group may have something, since what it finds is its own. When that is, the topic says with each
    fetch that waits and each change of the group; the last word holds for all of them. access: says whether a
    client may wait, and counts the fetches of each.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._ledger = access.ledger
        self._deadlines: Schedule[PendingRequest] = Schedule()
        self._by_topic: defaultdict[str, Schedule[PendingRequest]] = defaultdict(Schedule)
        self._synced: defaultdict[str, Schedule[PendingRequest]] = defaultdict(Schedule)
        self._by_group: defaultdict[str, dict[str, dict[PendingRequest, None]]] = defaultdict(dict)
        self._group_afters: dict[tuple[str, str], int] = {}
        self._retries: Schedule[tuple[str, str]] = Schedule()
        self._left: deque[Connection] = deque()

    def __len__(self) -> int:
        return len(self._deadlines)

    def __iter__(self) -> Iterator[PendingRequest]:
        return iter([*self._deadlines])

    def add(self, request: PendingRequest, config: Config) -> None:
        """Let a fetch wait until its deadline.

        Raises ``busy`` beyond a limit or quota, ``denied`` if a reload has taken the right for it, which a
        topic may have had since before that.
        """
        self._access.renew(request)
        parked = request.connection.parked
        if request.connection.is_gone:
            raise error("busy", "the connection has ended")
        if len(self) >= config.waits_max:
            raise error("busy", f"{len(self)} requests are waiting")
        if len(parked) >= config.connection_waits_max:
            raise error("busy", f"{len(parked)} requests of this connection are waiting")
        if request.client is not None:
            self._ledger.charge(request.client.name, Quota.WAITS)
        parked[request] = None
        self._deadlines.plan(request, request.deadline)
        if request.group:
            key = request.topic, request.group
            self._by_group[request.topic].setdefault(request.group, {})[request] = None
            self._group_afters[key] = request.after
            self._retries.plan_earlier(key, request.retry)
        else:
            self._orders_of(request)[request.topic].plan(request, request.after)

    def take_ready(self, topic: str, newest: int, synced: int, most: int) -> list[PendingRequest]:
        """Take the fetches of a topic that begin below `newest`, those furthest behind first.

        Of those for synced records, the ones below `synced`; of each group, the one that has waited longest.
        """
        order = self._by_topic.get(topic)
        found = order.take_due(newest - 1, most) if order is not None else []
        if self._synced and (order := self._synced.get(topic)) is not None:
            found += order.take_due(synced - 1, most - len(found))
        for group, waiting in self._by_group.get(topic, {}).items():
            if self._group_afters[topic, group] < newest and len(found) < most:
                found.append(next(iter(waiting)))
        return self._end(found)

    def take_group(self, topic: str, ready: GroupReady, now: float) -> list[PendingRequest]:
        """Take the fetch of a group that has waited longest, if the group is ready by now.

        If it is later, the fetch is taken by then.
        """
        waiting = self._by_group.get(topic, {}).get(ready.group)
        if not waiting:
            return []
        self._group_afters[topic, ready.group] = ready.after
        if ready.at > now:
            self._retries.plan_earlier((topic, ready.group), ready.at)
            return []
        return self._end([next(iter(waiting))])

    def take_retries(self, now: float) -> list[PendingRequest]:
        """Take a fetch of each group that may have something by now."""
        due = self._retries.take_due(now)
        return self._end([next(iter(self._by_group[topic][group])) for topic, group in due])

    def take_all(self, topic: str | None = None) -> list[PendingRequest]:
        """Take all fetches, or all of a topic, the oldest first."""
        return self._end([one for one in self._deadlines if topic in (None, one.topic)])

    def take(self, requests: list[PendingRequest]) -> list[PendingRequest]:
        """Take these fetches."""
        return self._end(requests)

    def take_left(self, connection: Connection) -> None:
        """Drop the fetches of a connection that has ended, a slice of them at each `take_expired`."""
        if connection.parked:
            self._left.append(connection)

    def take_expired(self, now: float) -> list[PendingRequest]:
        """Take the fetches whose deadline has passed."""
        if self._left:
            self._drop_slice()
        return self._end(self._deadlines.take_due(now))

    def next_due(self) -> float:
        """Return the monotonic time of the next call of `take_expired` and `take_retries`."""
        return 0.0 if self._left else min(self._deadlines.next_due(), self._retries.next_due())

    def _drop_slice(self) -> None:
        """Drop some fetches of a connection that has ended."""
        parked = self._left[0].parked
        self._end([*islice(parked, LEFT_MAX)])
        if not parked:
            self._left.popleft()

    def _end(self, requests: list[PendingRequest]) -> list[PendingRequest]:
        for request in requests:
            self._deadlines.cancel(request)
            request.connection.parked.pop(request, None)
            if request.client is not None:
                self._ledger.release(request.client.name, Quota.WAITS)
            if request.group:
                self._end_in_group(request)
                continue
            orders = self._orders_of(request)
            order = orders.get(request.topic)
            if order is not None:
                order.cancel(request)
                if not order:
                    del orders[request.topic]
        return requests

    def _orders_of(self, request: PendingRequest) -> defaultdict[str, Schedule[PendingRequest]]:
        """Return the fetches that wait for what this one waits for, by topic."""
        return self._by_topic if request.durability is None else self._synced

    def _end_in_group(self, request: PendingRequest) -> None:
        groups = self._by_group.get(request.topic, {})
        waiting = groups.get(request.group, {})
        waiting.pop(request, None)
        if not waiting and groups.pop(request.group, None) is not None:
            del self._group_afters[request.topic, request.group]
            self._retries.cancel((request.topic, request.group))
            if not groups:
                del self._by_group[request.topic]
