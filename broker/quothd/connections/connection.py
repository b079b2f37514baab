"""One connection of a client, and the memory that replies to it hold.

A reply holds memory from the moment a topic makes it until the client's host has acknowledged it:

    made      by a topic, on its way to the front end
    kept      by the front end, since libzmq has no room
    queued    by libzmq or the kernel; an upper bound, which the kernel's counters lower

All connections share a limit. One of them may hold as much as all together leave free: one that does not read
gets half of the limit, two get a third each, and any number of them leaves room for another one.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Any, TypeAlias

from quothd.connections.kernel import IN_PROCESS, AcceptedSocket, Counters
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Frames

CONNECTION_REPLY_BYTES_MAX = 64 * 2**20
"""The most that one connection may hold, however much memory there is."""
LEAST_REPLY_BYTES = 64 * 2**10
"""A fetch is cut to no less than this; where there is less room, it is refused."""
SMALL_REPLY_BYTES = 4 * 2**10
SMALL_REPLY_FRAMES = 5
SMALL_HELD_BYTES = 5 * 2**10
"""A reply whose last frame is no larger, and which has no more frames, is small; so is another one that takes
no more memory than this. They are counted only while they are kept: libzmq holds `QUEUED_MAX` at most."""
REPLY_BYTES = 128
"""Memory of a reply beside that of its frames."""
FRAME_BYTES = 48
"""Memory of a frame beside the bytes in it."""
QUEUED_MAX = 64
"""Replies that libzmq holds for one client. Its default lets a client that does not read hold a gigabyte."""
LOOK_ABOVE_BYTES = 2**20
"""With more than this in the queue, each reply asks the kernel what has left: 10 us."""
COUNTED_BYTES = 2**20
"""After so many bytes of messages, `count` is due."""
WRITE_S = 0.05
"""libzmq writes a reply within this time if its client has room."""
SILENCE_S = 10.0
"""A connection whose host acknowledges none of its replies for so long is ended."""
Frame = bytes | memoryview
Sender: TypeAlias = tuple[int, bytes]
"""The descriptor of the connection from which a message came, -1 for one inside the process, and the public
key of its client, which may be empty."""


def memory_of(frames: Frames) -> int:
    """Return the bytes that a reply takes."""
    return REPLY_BYTES + FRAME_BYTES * len(frames) + sum(map(len, frames))


class ReplyMemory:
    """The memory of all replies. held: bytes at present. limit: bytes, of all replies together.

    The threads of topics change it while they make replies: its lock guards each change, and nothing else.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.lock = Lock()


class Connection:
    """One connection. The front end's thread owns it; other threads may use `room` and `hold`.

    route: the address that the ROUTER gave it. socket: libzmq's. user_id: the public key of the client, empty
    without keys, None for a client in this process. is_gone: it has ended, or will soon. parked: its fetches
    that wait. received: bytes that had come when the kernel was asked last. uncounted: those of its messages
    since then, a little more than came. held: bytes of replies. queued: those of them that libzmq or the
    kernel may hold. counts_for: the client whose quota it takes from, None for none. problem: the answer to
    all its requests if it is beyond that quota.
    """

    __slots__ = (
        "_acknowledged", "_between", "_credit", "_memory", "_moved_at", "_queue", "_sent_at", "_unread",
        "counts_for", "held", "is_gone", "parked", "problem", "queued", "received", "route", "socket",
        "uncounted", "user_id",
    )  # fmt: skip

    def __init__(
        self,
        memory: ReplyMemory,
        route: bytes = b"",
        socket: AcceptedSocket = IN_PROCESS,
        user_id: str | None = None,
    ) -> None:
        self.route = route
        self.socket = socket
        self.user_id = user_id
        self.is_gone = False
        self.counts_for: str | None = None
        self.problem: QuothError | None = None
        self.parked: dict[Any, None] = {}
        self.received = self.uncounted = 0
        self.held = self.queued = 0
        self._memory = memory
        self._queue: deque[tuple[int, int]] = deque()
        self._acknowledged = self._credit = self._between = self._unread = 0
        self._moved_at = self._sent_at = 0.0

    # -- any thread -----------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Bytes of replies that may be made for it now. A fetch needs `LEAST_REPLY_BYTES`.

        A reply has one batch at least, so others may have taken more than their part. A connection that holds
        nothing gets a reply nevertheless, up to twice the limit.
        """
        memory = self._memory
        room = min(CONNECTION_REPLY_BYTES_MAX, memory.limit - memory.held) - self.held
        if room < LEAST_REPLY_BYTES and not self.held and memory.held < 2 * memory.limit:
            return LEAST_REPLY_BYTES
        return room

    def hold_large(self, frames: Frames) -> int:
        """Count a reply that was made if it is large; returns its bytes, 0 for a small one."""
        size = memory_of(frames)
        if size <= SMALL_HELD_BYTES:
            return 0
        self.hold(size)
        return size

    def hold(self, size: int) -> None:
        """Count the bytes of a reply that was made, or below 0, of one that is no longer held."""
        memory = self._memory
        with memory.lock:
            memory.held += size
            self.held += size

    # -- the front end --------------------------------------------------------------------------------------

    def count(self) -> None:
        """Replace the sum of its messages, which is an estimate, by the kernel's counter."""
        self.received, self.uncounted = self.received + self.uncounted, 0
        received = self.socket.received()
        if received is not None:
            self.received = received

    def begin_queue(self) -> None:
        """Learn from the kernel what was written before libzmq takes the first reply of the queue."""
        counters = self.socket.tcp_counters() or Counters(-1, -1, 0)
        self._acknowledged, self._credit, self._between = counters.acknowledged, -counters.unread, 0

    def queue_small(self, written: int) -> None:
        """Take note that libzmq has taken a small reply behind a large one. written: bytes on the wire."""
        self._between += written

    def queue(self, size: int, written: int, now: float) -> None:
        """Take note that libzmq has taken a large reply. size: bytes that are held; written: on the wire.

        It holds `QUEUED_MAX` replies, and one that it writes. A client in this process is not watched: its
        memory is that of the program.
        """
        if self.socket.descriptor < 0:
            self.hold(-size)
            return
        queue = self._queue
        if not queue:
            self._unread, self._moved_at = 0, now
        queue.append((size, self._between + written))
        self._between = 0
        self._sent_at = now
        self.queued += size
        if len(queue) > QUEUED_MAX + 1:
            self._credit -= self._leave()

    def look(self, counters: Counters, now: float, *, has_sent: bool = False) -> None:
        """Learn from the kernel which of the replies in the queue have left.

        A reply has left once its bytes, and all before them, are acknowledged. All have left if the kernel
        holds nothing, unless libzmq has taken one less than `WRITE_S` ago, which it may be about to write.
        Over ipc nothing is acknowledged, and replies would never leave a busy connection: there has_sent says
        if libzmq has taken one just now.
        """
        is_counted = counters.acknowledged >= 0
        has_moved = counters.acknowledged != self._acknowledged or counters.unread < self._unread
        if has_moved or not counters.unread:
            self._moved_at = now
        self._unread = counters.unread
        if self._acknowledged >= 0:
            self._credit += counters.acknowledged - self._acknowledged
        self._acknowledged = counters.acknowledged
        while self._queue and self._credit >= self._queue[0][1]:
            self._credit -= self._leave()
        if not counters.unread and not (now < self._sent_at + WRITE_S if is_counted else has_sent):
            self.forget_queue()

    def silence(self, now: float) -> float:
        """Return the seconds for which none of the replies in the queue have moved."""
        return now - self._moved_at if self._queue else 0.0

    def forget_queue(self) -> None:
        """Count the replies in the queue as gone."""
        self._queue.clear()
        self.hold(-self.queued)
        self.queued = 0

    def _leave(self) -> int:
        size, written = self._queue.popleft()
        self.queued -= size
        self.hold(-size)
        return written


def unwatched() -> Connection:
    """Return a connection of requests that the broker makes itself."""
    return Connection(ReplyMemory(2**62))
