"""Replies on their way out.

libzmq takes a few dozen replies for a client; a burst fills that faster than its I/O thread empties it. What
it has no room for is kept here in order and tried again in a moment. A client that takes nothing for a while,
or that lets too much gather, does not read: its replies are dropped, and nobody else notices.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import zmq

from quothd.frontend.router import Router
from quothwire.protocol.binary_codec import Frames

QUEUED_MAX = 64
"""Replies that libzmq holds for one client; by default one that did not read could hold a gigabyte."""
KEPT_BYTES_MAX = 64 * 2**20
"""For one client: some of the largest replies, or all that end a hundred thousand waits at once. A reply may
keep twice as much from being freed as it shows."""
REPLY_BYTES, FRAME_BYTES = 128, 48
"""What a reply and each of its frames take in memory beside the bytes in them."""
PATIENCE_S = 10.0
RETRY_S, RETRY_MAX_S = 0.001, 0.02


class _Kept:
    """The replies kept for one client, oldest first, and the time at which it has taken one last."""

    __slots__ = ("bytes", "replies", "since")

    def __init__(self, now: float) -> None:
        self.replies: deque[tuple[Frames, int]] = deque()
        self.bytes = 0
        self.since = now

    def add(self, frames: Frames) -> None:
        """Keep one more reply."""
        size = REPLY_BYTES + FRAME_BYTES * len(frames) + sum(map(len, frames))
        self.replies.append((frames, size))
        self.bytes += size

    def drop_first(self, now: float) -> None:
        """Its oldest reply has been taken."""
        self.bytes -= self.replies.popleft()[1]
        self.since = now


class ReplyQueue:
    """Sends to a ROUTER. Owned by its thread.

    kept: replies that wait for room, by client.
    """

    def __init__(self, router: Router, counters: Counter[str], monotonic: Callable[[], float]) -> None:
        self._router = router
        self._counters = counters
        self._monotonic = monotonic
        self.kept: dict[bytes, _Kept] = {}
        self._pause = RETRY_S
        self._again_at = 0.0

    def send(self, frames: Frames) -> None:
        """Send a reply, its route in front, or keep it until there is room."""
        client = bytes(frames[0])
        kept = self.kept.get(client)
        if kept is None:
            try:
                self._router.send(frames)
                return
            except zmq.ZMQError as problem:
                if self._needs_no_room(problem):
                    return
            now = self._monotonic()
            kept = self.kept[client] = _Kept(now)
            self._pause = RETRY_S
            self._again_at = now + RETRY_S
        if kept.bytes > KEPT_BYTES_MAX:
            self._counters["replies_dropped"] += 1
            return
        kept.add(frames)

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
            while kept.replies and self._sent(kept.replies[0][0]):
                kept.drop_first(now)
                moved = True
                if self._monotonic() >= until:
                    break
            if now - kept.since > PATIENCE_S:
                self._counters["replies_dropped"] += len(kept.replies)
                kept.replies.clear()
            del self.kept[client]
            if kept.replies:
                self.kept[client] = kept
            if moved and self._monotonic() >= until:
                self._again_at = now
                return
        self._pause = RETRY_S if moved else min(2 * self._pause, RETRY_MAX_S)
        self._again_at = now + self._pause

    def _sent(self, frames: Frames) -> bool:
        """Hand a reply to libzmq; False if it has no room."""
        try:
            self._router.send(frames)
        except zmq.ZMQError as problem:
            return self._needs_no_room(problem)
        return True

    def _needs_no_room(self, problem: zmq.ZMQError) -> bool:
        """True if the client is gone, False if libzmq has no room for it. Raises any other problem."""
        if problem.errno == zmq.EAGAIN:
            return False
        if problem.errno != zmq.EHOSTUNREACH:
            raise problem
        self._counters["replies_unroutable"] += 1
        return True
