"""The ROUTER socket: whole messages, the routes that are taken, and the replies that it has no room for.

Every frame passes here. The functions are compiled; in Python, flags are integers, not members of an
enumeration, frames go past the half of pyzmq's `send` that serves other types of sockets, and a poll says
that no message is left, which costs a third of what an exception does.

libzmq takes a few dozen replies for a client, and a burst has more. The others are kept in order and tried
again soon. The replies of a client that takes none for a while, or that has too many, are dropped.
"""

from __future__ import annotations

import ctypes
import errno
import math
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import zmq

from quothd.connections.connection import (
    SILENCE_S,
    SMALL_HELD_BYTES,
    Connection,
    Frame,
    Sender,
    memory_of,
)
from quothwire.native import compiled
from quothwire.protocol.binary_codec import Frames

COPY_BELOW_BYTES = 64 * 2**10
"""Below this libzmq copies faster than Python hands a buffer over."""
MESSAGES_MAX = 32
MESSAGES_BYTES_MAX = 2**20
"""So many messages are received at once: as many as take 1 ms to answer. The last one may be larger."""
ROUTE_BYTES = 5
"""A route of libzmq: a zero, and a number of 32 bits."""
NUMBERS = 2**32
FRAME_HEAD_BYTES, ENCRYPTION_BYTES = 2, 33
"""What ZMTP, and CURVE, add to each frame."""
RETRY_S, RETRY_MAX_S = 0.001, 0.02
_READABLE = int(zmq.POLLIN)
_NOW = int(zmq.NOBLOCK)
_NOW_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_compiled = compiled("quothd._native.router")
_send = ctypes.PyDLL(sys.modules[zmq.backend.Socket.__module__].__file__, use_errno=True).zmq_send
_send.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int


@_compiled
def wait_for_input(sockets: list[zmq.Socket[bytes]], fd: int, milliseconds: int) -> list[bool]:
    """Wait for input of the sockets or of a descriptor; return which have some, the descriptor last."""
    sources: list[Any] = [*sockets, fd]
    found = [source for source, _ in zmq.zmq_poll([(one, _READABLE) for one in sources], milliseconds)]
    return [one in found for one in sources]


@_compiled
def receive_messages(
    socket: zmq.Socket[bytes], users: Mapping[bytes, bytes | int]
) -> tuple[list[list[Frame]], dict[int, Sender], bool]:
    """Return the frames of messages that have come, without waiting, and True if no message is left.

    Large frames stay in libzmq's memory. users: the keys of known clients by route, or the descriptors of
    their connections. The senders of the other messages are returned, too, by the number of the message, and
    those of messages that came from another sender than their route has: the route does not tell who a
    client is, since clients may choose it.
    """
    messages: list[list[Frame]] = []
    senders: dict[int, Sender] = {}
    size = 0
    while len(messages) < MESSAGES_MAX and size < MESSAGES_BYTES_MAX:
        if not zmq.zmq_poll([(socket, _READABLE)], 0):
            return messages, senders, True
        frames: list[Frame] = []
        more = True
        while more:
            frame = socket.recv(_NOW, copy=False)
            if not frames and not _is_known(frame, users):
                senders[len(messages)] = _sender(frame)
            frames.append(frame.bytes if len(frame) < COPY_BELOW_BYTES else frame.buffer)
            size += len(frame)
            more = frame.more
        messages.append(frames)
    return messages, senders, False


@_compiled
def send_message(socket: zmq.Socket[bytes], frames: Frames) -> bool:
    """Send a message without waiting. Returns False where the client has no room. Raises zmq.ZMQError."""
    send: Callable[..., object] = super(zmq.Socket, socket).send
    *first, last = frames
    copy = len(last) < COPY_BELOW_BYTES
    try:
        for frame in first:
            send(frame, _NOW_AND_MORE, copy)
        send(last, _NOW, copy)
    except zmq.Again:
        return False
    return True


@_compiled
def find_taken_route(socket: zmq.Socket[bytes], begin: int, count: int) -> int:
    """Return the first of so many numbers of libzmq's whose route a connection has, -1 if none has.

    The ROUTER has to report messages that it cannot send. The connection gets an empty message. libzmq is
    called without the exceptions of pyzmq, which take longer.
    """
    for number in range(begin, begin + count):
        if _send(int(socket.underlying), route_of(number), ROUTE_BYTES, _NOW_AND_MORE) >= 0:
            socket.send(b"")
            return number
        if ctypes.get_errno() == errno.EAGAIN:
            return number
    return -1


def route_of(number: int) -> bytes:
    """Return the route that libzmq makes of a number."""
    return b"\0" + (number % NUMBERS).to_bytes(4)


def _is_known(frame: zmq.Frame, users: Mapping[bytes, bytes | int]) -> bool:
    """Return True if the route belongs to the client whose key, or connection, it comes with."""
    user = users.get(frame.bytes)
    descriptor, user_id = _sender(frame)
    return user is not None and user == (descriptor if isinstance(user, int) else user_id)


def _sender(frame: zmq.Frame) -> Sender:
    descriptor = -1
    with suppress(zmq.ZMQError):
        descriptor = int(frame.get(zmq.SRCFD))
    return descriptor, _user_id(frame)


def _user_id(frame: zmq.Frame) -> bytes:
    """Return the key of the client; without keys, its peer writes what it likes there."""
    try:
        return str(frame.get("User-Id")).encode()
    except (zmq.ZMQError, UnicodeDecodeError):
        return b""


# -- replies ------------------------------------------------------------------------------------------------


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
        send: Callable[[Frames], bool],
        connection_of: Callable[[bytes], Connection],
        queued: Callable[[Connection, int, int, float], None],
        counters: Counter[str],
        monotonic: Callable[[], float],
        *,
        is_encrypted: bool = False,
    ) -> None:
        """send: does as `send_message`. connection_of: returns the connection of a route.

        queued: called with the connection of each large reply that libzmq has taken, the bytes that are held,
        those that it writes, and the time. is_encrypted: clients have keys.
        """
        self._send = send
        self._queued = queued
        self._connection_of = connection_of
        self._counters = counters
        self._monotonic = monotonic
        self._frame_bytes = FRAME_HEAD_BYTES + ENCRYPTION_BYTES * is_encrypted
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

    def next_try(self) -> float:
        """Return the monotonic time of the next call of `offer_again`, infinity while nothing is kept."""
        return self._again_at if self.kept else math.inf

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
        is_large = held > SMALL_HELD_BYTES
        if is_large and connection is not None and not connection.queued:
            connection.begin_queue()
        try:
            if not self._send(frames):
                return False
        except zmq.ZMQError as problem:
            if problem.errno != zmq.EHOSTUNREACH:
                raise
            self._counters["replies_unroutable"] += 1
            if connection is not None:
                connection.hold(-held)
            return True
        if connection is None:
            return True
        if is_large:
            self._queued(connection, held, self._written(frames), self._monotonic())
            return True
        if held:
            connection.hold(-held)
        if connection.queued:
            connection.queue_small(self._written(frames))
        return True

    def _written(self, frames: Frames) -> int:
        """Return the bytes that libzmq writes for a reply; 7 less for each frame of more than 255."""
        return sum(map(len, frames)) - len(frames[0]) + self._frame_bytes * (len(frames) - 1)
