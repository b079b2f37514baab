"""Notices ended connections that libzmq does not close.

It does not see the end of a connection for whose messages it has no room. That stays so once the route of the
connection belongs to a later one. Each of them keeps a descriptor, and a place in the table.
"""

from __future__ import annotations

from itertools import islice

STUCK_S, STUCK_MAX = 5.0, 100
"""libzmq may take so long to close a connection. For so many, or a quarter of all, it may take longer."""


class StuckConnections:
    """The connections that have ended and are not closed yet. connections_max: of the table."""

    def __init__(self, connections_max: int) -> None:
        self._most = min(STUCK_MAX, connections_max // 4)
        self._ended: dict[int, float] = {}

    def add(self, descriptor: int, now: float) -> None:
        """Take note of the end of a connection."""
        self._ended[descriptor] = now

    def remove(self, descriptor: int) -> None:
        """Take note that libzmq has closed it."""
        self._ended.pop(descriptor, None)

    def are_too_many(self, now: float) -> bool:
        """Return True if more than `STUCK_MAX` have ended more than `STUCK_S` ago."""
        if len(self._ended) <= self._most:
            return False
        return now - next(islice(self._ended.values(), self._most, None)) > STUCK_S
