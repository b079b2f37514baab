"""Notices ended connections that libzmq does not close, and resets the endpoints over TCP then.

It does not see the end of a connection for whose messages it has no room. That stays so once the route of the
connection belongs to a later one. Each of them keeps a descriptor, and a place in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import islice

from quothd.connections.holders import Accepted
from quothd.service.log_events import note

STUCK_S, STUCK_MAX = 5.0, 100
"""libzmq may take so long to close a connection. For so many, or a quarter of all, it may take longer."""
RESET_S = 0.25
"""Between the end of all connections over TCP and the reset, in which libzmq closes those that it can. It may
end the process where an endpoint is closed while a connection of it breaks."""


class Reset:
    """The reset of the endpoints over TCP, which closes all their connections. at: when it is due, or never.

    reset: closes the endpoints, and opens them again.
    """

    def __init__(self, reset: Callable[[], None]) -> None:
        self.at = math.inf
        self._reset = reset
        self._is_done = False

    def tick(self, now: float, count: int, *, is_needed: bool) -> bool:
        """Reset once that has been needed for `RESET_S`; true at first: all connections have to be ended.

        count: of the connections.
        """
        if self._is_done or not is_needed:
            self.at = math.inf
        elif self.at == math.inf:
            self.at = now + RESET_S
            return True
        elif now >= self.at:
            self._is_done = True
            self._reset()
            note("connections_reset", count=count)
        return False

    def ends(self) -> bool:
        """Take note that an endpoint is open; true for the first one after a reset."""
        was_done, self._is_done = self._is_done, False
        return was_done


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
