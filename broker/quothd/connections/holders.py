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
IDLE_S = 0.2
"""A connection that holds less is looked at again after so long. Each look takes 2 us, and there are many."""
FREEING_S = 1.0
"""libzmq may take so long to free what a connection held that was ended."""


@dataclass(slots=True)
class Accepted:
    """A connection that libzmq has accepted. connection: None until its first message.

    earliest: see `RouteGuard.accept`. since: the monotonic time at which its report was read. is_idle: it
    held little when all connections were looked at. is_ended: the broker has ended it, or its client did
    before the broker could; freed_at: when, if it held much.
    """

    socket: AcceptedSocket
    earliest: int
    since: float
    connection: Connection | None = None
    is_idle: bool = False
    is_ended: bool = False
    freed_at: float = -inf

    @property
    def unread(self) -> int:
        """Bytes that have come and are not part of a message that was received."""
        received, connection = self.socket.received(), self.connection
        if received is None:
            return 0
        return received - (connection.received + connection.uncounted if connection is not None else 0)

    def is_of(self, known: Connection | None) -> bool:
        """Return False if a message with its descriptor may be of a later one. known: that of the route."""
        if self.is_ended or self.connection is not None:
            return not self.is_ended and self.connection is known
        return self.socket.counters() is not None

    def end(self, now: float) -> bool:
        """End it; its messages that are not taken yet will be dropped. False if its client has ended it."""
        if self.held >= LEAST_HELD_BYTES:
            self.freed_at = now
        self.is_ended = True
        if self.connection is not None:
            self.connection.is_gone = True
        return self.socket.end()

    @property
    def held(self) -> int:
        """A bound of the bytes that the broker holds for it."""
        return self.unread + (self.connection.held if self.connection is not None else 0)


class MemoryHolders:
    """All connections, for the thread that watches the memory. It looks at copies of the front end's table.

    ended: the connections that were ended, for the front end; False with those that had ended before.
    """

    def __init__(self, accepted: Mapping[int, Accepted], replies: ReplyMemory) -> None:
        self._accepted = accepted
        self._replies = replies
        self.ended: deque[tuple[Accepted, bool]] = deque()
        self._full_at = -inf

    def held_bytes(self) -> float:
        """Return an upper bound of what all connections hold; infinity with one over ipc: it is not counted.

        Of a message whose last frame has not come, each byte may be a frame.
        """
        everyone = [*self._accepted.values()]
        if not all(one.socket.peer for one in everyone):
            return inf
        return self._replies.held + FRAME_BYTES * sum(max(0, one.unread) for one in everyone)

    def end_largest(self, size: int, now: float) -> int:
        """End the connections that hold most memory, until that is so many bytes; returns how many it was.

        A message of many small frames takes a multiple of its bytes, so that more may become free. The system
        does not count what comes over ipc: without a better candidate, also among those that were
        ended just now, all of these connections are ended.
        """
        everyone = [*self._accepted.values()]
        is_full = now >= self._full_at + IDLE_S
        if is_full:
            self._full_at = now
        freed = 0
        for held, accepted in self._largest_first(everyone, is_full=is_full):
            freed += held
            self._end(accepted, now)
            if freed >= size:
                break
        if is_full and not freed and not any(now < one.freed_at + FREEING_S for one in everyone):
            for accepted in everyone:
                if not accepted.socket.peer and not accepted.is_ended:
                    self._end(accepted, now)
        return freed

    def _largest_first(self, everyone: list[Accepted], *, is_full: bool) -> list[tuple[int, Accepted]]:
        """Return the connections that hold much, and their bytes. is_full: look at idle ones, too."""
        rows = [(one.held, one) for one in everyone if not one.is_ended and (is_full or not one.is_idle)]
        if is_full:
            for held, one in rows:
                one.is_idle = held < LEAST_HELD_BYTES
        large = [row for row in rows if row[0] >= LEAST_HELD_BYTES]
        return sorted(large, key=lambda row: row[0], reverse=True)

    def _end(self, accepted: Accepted, now: float) -> None:
        self.ended.append((accepted, accepted.end(now)))
        accepted.freed_at = now
