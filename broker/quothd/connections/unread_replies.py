"""Watches the large replies that libzmq has taken, until their clients have read them."""

from __future__ import annotations

import math
from collections.abc import Callable

from quothd.connections.connection import LOOK_ABOVE_BYTES, SILENCE_S, Connection

LOOK_S = 0.25
"""Between two looks at the connections with replies in their queues."""


class UnreadReplies:
    """The connections with replies in their queues. Owned by the front end's thread.

    end_silent: called with a connection that has taken none for `SILENCE_S`, and the time.
    """

    def __init__(self, end_silent: Callable[[Connection, float], None]) -> None:
        self._end_silent = end_silent
        self._queued: dict[Connection, None] = {}
        self._look_at = 0.0

    def add(self, connection: Connection, size: int, written: int, now: float) -> None:
        """Take note that libzmq has taken a large reply to a connection; see `Connection.queue`."""
        if connection.is_gone:
            connection.hold(-size)
            return
        connection.queue(size, written, now)
        if connection.queued:
            if not self._queued:
                self._look_at = now + LOOK_S
            self._queued[connection] = None
            if connection.queued > LOOK_ABOVE_BYTES:
                self.look(connection, now, has_sent=True)

    def forget(self, connection: Connection) -> None:
        """Count the replies to a connection that has ended as gone."""
        self._queued.pop(connection, None)
        connection.forget_queue()

    def look(self, connection: Connection, now: float, *, has_sent: bool = False) -> None:
        """Ask the kernel which of the replies to a connection have left; see `Connection.look`."""
        counters = connection.socket.counters()
        if counters is not None:
            connection.look(counters, now, has_sent=has_sent)
        if counters is None or not connection.queued:
            self.forget(connection)

    def tick(self, now: float) -> float:
        """Look at all connections if that is due; returns the time of the next call, infinity without one."""
        if not self._queued:
            return math.inf
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            for connection in [*self._queued]:
                self.look(connection, now)
                if connection.silence(now) > SILENCE_S:
                    self._end_silent(connection, now)
        return self._look_at
