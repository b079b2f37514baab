"""Counts the connections that the broker has ended, or that failed at their beginning, and logs them."""

from __future__ import annotations

from collections import Counter

import zmq

from quothd.connections.kernel import AcceptedSocket
from quothd.service.log_events import note

LOGGED_S = 10.0
"""Between two log lines with the same reason; the line says how many there were."""


class EndLog:
    """Owned by the front end's thread. counters: gets the number of all ends."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._counted: Counter[str] = Counter()
        self._logged: dict[str, float] = {}

    def note(self, socket: AcceptedSocket, reason: str, now: float) -> None:
        """Count an end, and log it, unless one for this reason was logged just now."""
        self._counters["connections_ended"] += 1
        if count := self._due(reason, now):
            note("connection_ended", reason=reason, peer=socket.peer or "ipc", count=count)

    def note_failure(self, event: int, number: int, now: float) -> None:
        """Count a handshake that failed, or a connection that could not be accepted, and log the latter.

        event: of libzmq. number: of the error.
        """
        if event != zmq.EVENT_ACCEPT_FAILED:
            self._counters["handshakes_failed"] += 1
            return
        self._counters["accepts_failed"] += 1
        if count := self._due("accept", now):
            note("accept_failed", problem=zmq.strerror(number), count=count)

    def _due(self, reason: str, now: float) -> int:
        """Count one; returns how many there were since the last line, 0 if that is not long ago."""
        self._counted[reason] += 1
        if now - self._logged.get(reason, -LOGGED_S) < LOGGED_S:
            return 0
        self._logged[reason] = now
        return self._counted.pop(reason)
