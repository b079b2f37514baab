"""Counts what each client has and does, and refuses what is beyond its quotas, or those of all together."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping

from quothd.access.quota import Quota, quota_exceeded

Limits = Mapping[Quota, int]
RATE_S = 60.0
"""The time in which `Quota.TOPIC_CREATIONS` counts."""
COUNTED = (
    Quota.CONNECTIONS,
    Quota.REQUESTS,
    Quota.REQUEST_BYTES,
    Quota.WAITS,
    Quota.TOPICS,
    Quota.STORE_BYTES,
)
"""The quotas of amounts that a ledger holds. The topics know the others."""
ALL = ""
"""Stands for all clients together, and for the process of an embedded broker."""


class Ledger:
    """Holds the amounts that the clients have, by name and quota. Owned by the front end's thread.

    limits_of: returns the quotas of a client, those of all together for `ALL`. A quota that is missing there
    is none. What is done for no client counts for all together only.
    """

    def __init__(self, limits_of: Callable[[str], Limits]) -> None:
        self.limits_of = limits_of
        self._used: Counter[tuple[str, Quota]] = Counter()
        self._times: defaultdict[str, deque[float]] = defaultdict(deque)

    def used(self, client: str, quota: Quota) -> int:
        """Return what a client has, or all together for `ALL`."""
        return self._used[client, quota]

    def amounts(self, client: str) -> dict[str, list[int]]:
        """Return what a client has and may have, by the name of the quota; -1: there is no limit."""
        limits = self.limits_of(client)
        return {str(quota): [self._used[client, quota], limits.get(quota, -1)] for quota in COUNTED}

    def check(self, client: str, quota: Quota, number: int = 1) -> None:
        """Raise ``quota_exceeded`` if a client may not have so much more.

        ``busy`` for what is in work, since a client that pipelines goes on a moment later. One request is in
        work whatever its size: the client could not send it later either.
        """
        for name in {client, ALL}:
            limit = self.limits_of(name).get(quota)
            used = self._used[name, quota]
            if limit is not None and used + number > limit and (used or quota is not Quota.REQUEST_BYTES):
                raise quota_exceeded(name, quota, limit)

    def count(self, client: str, quota: Quota, number: int = 1) -> None:
        """Add what a client has, or remove it with a number below zero, without a limit."""
        for name in {client, ALL}:
            self._used[name, quota] += number
            if not self._used[name, quota]:
                del self._used[name, quota]

    def charge(self, client: str, quota: Quota, number: int = 1) -> None:
        """Add what a client has. Raises as `check` does; then nothing is added."""
        self.check(client, quota, number)
        self.count(client, quota, number)

    def release(self, client: str, quota: Quota, number: int = 1) -> None:
        """Remove what was charged."""
        self.count(client, quota, -number)

    def check_creation(self, client: str, now: float) -> None:
        """Raise ``quota_exceeded`` if a client has created too many topics within the last minute."""
        for name in {client, ALL}:
            times = self._times[name]
            while times and times[0] <= now - RATE_S:
                times.popleft()
            limit = self.limits_of(name).get(Quota.TOPIC_CREATIONS)
            if limit is not None and len(times) >= limit:
                raise quota_exceeded(name, Quota.TOPIC_CREATIONS, limit)

    def count_creation(self, client: str, now: float) -> None:
        """Take note that a client has created a topic."""
        for name in {client, ALL}:
            if Quota.TOPIC_CREATIONS in self.limits_of(name):
                self._times[name].append(now)
