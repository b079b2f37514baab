"""Finds the connections that hold most memory, and ends them where memory is short."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from quothd.connections.connection import FRAME_BYTES, Connection, ReplyMemory
from quothd.connections.kernel import AcceptedSocket

LEAST_HELD_BYTES = 2**16
"""A connection that holds less is not ended for lack of memory."""


@dataclass(slots=True)
class Accepted:
    """A connection that libzmq has accepted. connection: None until its first message.

    earliest: see `RouteGuard.accept`.
    """

    socket: AcceptedSocket
    earliest: int
    connection: Connection | None = None

    @property
    def unread(self) -> int:
        """Bytes that have come and are not part of a message that was received."""
        received, connection = self.socket.received(), self.connection
        if received is None:
            return 0
        return received - (connection.received + connection.uncounted if connection is not None else 0)

    @property
    def held(self) -> int:
        """A bound of the bytes that the broker holds for it."""
        return self.unread + (self.connection.held if self.connection is not None else 0)


class MemoryHolders:
    """All connections, for the thread that watches the memory. It looks at copies of the front end's table.

    ended: the connections that were ended, for the front end to count and to log.
    """

    def __init__(self, accepted: Mapping[int, Accepted], replies: ReplyMemory) -> None:
        self._accepted = accepted
        self._replies = replies
        self.ended: deque[Accepted] = deque()

    def held_bytes(self) -> float:
        """Return an upper bound of what all connections hold; infinity with one over ipc: it is not counted.

        Of a message whose last frame has not come, each byte may be a frame.
        """
        everyone = [*self._accepted.values()]
        if not all(one.socket.peer for one in everyone):
            return inf
        return self._replies.held + FRAME_BYTES * sum(max(0, one.unread) for one in everyone)

    def end_largest(self, size: int) -> int:
        """End the connections that hold most memory, until that is so many bytes; returns how many it was.

        A message of many small frames takes a multiple of its bytes, so that more may become free. The system
        does not count what comes over ipc: without a better candidate, all of these connections are ended.
        """
        everyone = [*self._accepted.values()]
        rows = sorted((one.held, one.socket.descriptor, one) for one in everyone)
        freed = 0
        while rows and freed < size:
            held, _, accepted = rows.pop()
            if held < LEAST_HELD_BYTES:
                break
            freed += held
            self._end(accepted)
        if not freed:
            for accepted in everyone:
                if not accepted.socket.peer:
                    self._end(accepted)
        return freed

    def _end(self, accepted: Accepted) -> None:
        if accepted.socket.end():
            self.ended.append(accepted)
