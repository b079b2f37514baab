"""The replies on their way to libzmq, and those that it has no room for.

libzmq takes a few dozen replies for a client, and a burst has more. The others are kept in order and tried
again soon. The replies of a client that takes none for a while, or that has too many, are dropped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq

from quothd.connections.connection import SILENCE_S, SMALL_HELD_BYTES, Connection, memory_of
from quothwire.protocol.binary_codec import Frames

RETRY_S, RETRY_MAX_S = 0.001, 0.02


@dataclass(slots=True)
class _Kept:
    """The replies kept for one client, oldest first, each with the bytes that are held for it.

    since: the time at which the client has taken one last.
    """

    connection: Connection
    since: float
    replies: deque[tuple[Frames, int]] = field(default_factory=deque)


class ReplyQueue:
    """The replies on their way to libzmq. Owned by the front end's thread.

    kept: replies that wait for room, by client.
    """

    def __init__(
        self,
        send: Callable[[Frames], None],
        connection_of: Callable[[bytes], Connection],
        queued: Callable[[Connection, int, float], None],
        counters: Counter[str],
        monotonic: Callable[[], float],
    ) -> None:
        """send: does as `send_message`. connection_of: returns the connection of a route.

        queued: called with the connection, the bytes and the time of each large reply that libzmq has taken.
        """
        self._send = send
        self._queued = queued
        self._connection_of = connection_of
        self._counters = counters
        self._monotonic = monotonic
        self.kept: dict[bytes, _Kept] = {}
        self._pause = RETRY_S
        self._again_at = 0.0

    def send(self, frames: Frames, held: int = 0, connection: Connection | None = None) -> None:
        """Send a reply, its route in front, or keep it until there is room.

        held: the bytes of a large one, which this connection holds, 0 for a small one.
        """
        if connection is not None and connection.is_gone:  # another one may have its route by now
            self._counters["replies_unroutable"] += 1
            connection.hold(-held)
            return
        if not self.kept and self._sent(frames, held, connection):
            return
        client = bytes(frames[0])
        kept = self.kept.get(client)
        if kept is not None and connection not in (None, kept.connection):
            self.drop(client, kept.connection)
            kept = None
        if kept is None:
            if self.kept and self._sent(frames, held, connection):
                return
            now = self._monotonic()
            kept = self.kept[client] = _Kept(connection or self._connection_of(client), now)
            self._pause = RETRY_S
            self._again_at = now + RETRY_S
        connection = kept.connection
        if connection.room + held <= 0:
            self._counters["replies_dropped"] += 1
            connection.hold(-held)
            return
        if not held:
            held = memory_of(frames)
            connection.hold(held)
        kept.replies.append((frames, held))

    def next_try(self) -> float | None:
        """Return the monotonic time of the next call of `offer_again`, None while nothing is kept."""
        return self._again_at if self.kept else None

    def offer_again(self, now: float, until: float) -> None:
        """Try what is kept again, and give up on clients that take nothing.

        Once the monotonic clock says `until`, the others come at once in the next turn, before those of this.
        """
        if not self.kept or now < self._again_at:
            return
        moved = False
        for client, kept in list(self.kept.items()):
            while kept.replies and self._sent(*kept.replies[0], kept.connection):
                kept.replies.popleft()
                kept.since, moved = now, True
                if self._monotonic() >= until:
                    break
            if now - kept.since > SILENCE_S:
                self.drop(client, kept.connection)
                continue
            del self.kept[client]
            if kept.replies:
                self.kept[client] = kept
            if moved and self._monotonic() >= until:
                self._again_at = now
                return
        self._pause = RETRY_S if moved else min(2 * self._pause, RETRY_MAX_S)
        self._again_at = now + self._pause

    def drop(self, client: bytes, connection: Connection) -> None:
        """Drop the replies that are kept for a connection of a client."""
        kept = self.kept.get(client)
        if kept is not None and kept.connection is connection:
            del self.kept[client]
            self._counters["replies_dropped"] += len(kept.replies)
            kept.connection.hold(-sum(held for _, held in kept.replies))

    def _sent(self, frames: Frames, held: int, connection: Connection | None) -> bool:
        """Hand a reply to libzmq; False if it has no room. The reply to a client that is gone is dropped.

        A small one, which was kept, is no longer held then. A large one is held until it has left libzmq.
        """
        try:
            self._send(frames)
        except zmq.Again:
            return False
        except zmq.ZMQError as problem:
            if problem.errno != zmq.EHOSTUNREACH:
                raise
            self._counters["replies_unroutable"] += 1
            if connection is not None:
                connection.hold(-held)
            return True
        if held and connection is not None:
            if held > SMALL_HELD_BYTES:
                self._queued(connection, held, self._monotonic())
            else:
                connection.hold(-held)
        return True
