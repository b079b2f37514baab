"""Notices ended connections that libzmq does not close.

It does not see the end of a connection for whose messages it has no room. That stays so once the route of the
connection belongs to a later one. Each of them keeps a descriptor, and a place in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from quothd.connections.holders import Accepted

STUCK_S, STUCK_MAX = 5.0, 100
"""libzmq may take so long to close a connection. For so many, or a quarter of all, it may take longer."""


class StuckConnections:
    """The connections that have ended and are not closed yet. connections_max: of the table."""

    def __init__(self, connections_max: int) -> None:
        self._most = min(STUCK_MAX, connections_max // 4)
        self._ended: dict[int, float] = {}
        self._closed: list[Accepted] = []
        self._look_at = 0.0

    def add(self, descriptor: int, now: float) -> None:
        """Take note of the end of a connection."""
        self._ended.setdefault(descriptor, now)

    def remove(self, descriptor: int) -> None:
        """Take note that libzmq has closed it."""
        self._ended.pop(descriptor, None)

    def are_too_many(self, now: float) -> bool:
        """Return True if more than `STUCK_MAX` have ended more than `STUCK_S` ago."""
        if len(self._ended) <= self._most:
            return False
        return now - next(islice(self._ended.values(), self._most, None)) > STUCK_S

    def closed(self, accepted: Mapping[int, Accepted], now: float) -> list[Accepted]:
        """Return the connections that their clients had closed at the last look, and libzmq has not since.

        A look takes 4 us a connection: there is one in `STUCK_S`.
        """
        if now < self._look_at:
            return []
        self._look_at = now + STUCK_S
        known = {one.socket for one in self._closed}
        self._closed = [one for one in [*accepted.values()] if not one.is_ended and one.socket.is_closed()]
        return [one for one in self._closed if one.socket in known]
