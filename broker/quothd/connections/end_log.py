"""Counts the connections that the broker has ended, and logs them."""

from __future__ import annotations

from collections import Counter

from quothd.connections.kernel import AcceptedSocket
from quothd.service.log_events import note

LOGGED_S = 10.0
"""Between two log lines about ends for the same reason; the line says how many there were."""


class EndLog:
    """Owned by the front end's thread. counters: gets the number of all ends."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._ends: Counter[str] = Counter()
        self._logged: dict[str, float] = {}

    def note(self, socket: AcceptedSocket, reason: str, now: float) -> None:
        """Count an end, and log it, unless one for this reason was logged just now."""
        self._counters["connections_ended"] += 1
        self._ends[reason] += 1
        if now - self._logged.get(reason, -LOGGED_S) >= LOGGED_S:
            self._logged[reason] = now
            note("connection_ended", reason=reason, peer=socket.peer or "ipc", count=self._ends.pop(reason))
