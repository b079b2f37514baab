"""Keeps many raw connections in the state that a flood needs: one epoll, prebuilt bytes, no copies.

A connection that the broker closes is opened again at once.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from kit.deadlines import pause
from kit.zmtp import GREETING_BYTES, opening, reset

_POLL_S = 0.05
_REFUSED_S = 0.02
_CHUNK = 2**18
_AT_ONCE = 500
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Reads(Enum):
    """Treatment of replies: they stay in the system's buffers, are dropped, or are read byte by byte."""

    NOTHING = auto()
    ALL = auto()
    ONE_BYTE_A_SECOND = auto()


class End(Enum):
    """End of a connection once everything is sent: none, one after all has arrived, or a reset."""

    NEVER = auto()
    CLOSED = auto()
    RESET = auto()


class Plan(NamedTuple):
    """The behaviour of each connection of a flood.

    chunks: make what is sent on a new connection. kind: the type of socket that a handshake before that
    claims, empty for no handshake. connections: so many are kept open. receive_buffer: bytes that the system
    takes, 0 for its default. announcements: the connections go to the socket of the announcements. identity:
    all of them claim it; empty for none.
    """

    chunks: Callable[[], Iterable[bytes]]
    kind: bytes = b"DEALER"
    connections: int = 1
    reads: Reads = Reads.NOTHING
    end: End = End.NEVER
    receive_buffer: int = 0
    announcements: bool = False
    identity: bytes = b""


class Connection:
    """One socket and what is left to send on it; `left` is None once that is everything."""

    __slots__ = ("_answer", "_chunks", "events", "is_open", "left", "socket")

    def __init__(self, one: socket.socket, plan: Plan) -> None:
        self.socket = one
        self._chunks = iter(plan.chunks())
        self._answer = bytearray()
        self.is_open = not plan.kind
        self.left: memoryview | None = memoryview(opening(plan.kind, Identity=plan.identity))
        self.events = 0
        if self.is_open:
            self._go_on()

    def shake_hands(self) -> None:
        """Read greeting and READY of the broker: before it has sent them, libzmq takes no message."""
        head = GREETING_BYTES + 2
        size = head if len(self._answer) < head else head + self._answer[head - 1]
        found = self.socket.recv(size - len(self._answer))
        if not found:
            raise ConnectionResetError
        self._answer += found
        if len(self._answer) == size > head:
            self.is_open = True
            self._go_on()

    def send(self) -> int:
        """Send what the system takes, and return how many bytes that was."""
        size = 0
        while self.left and size < _CHUNK:
            try:
                sent = self.socket.send(self.left)
            except BlockingIOError:
                break
            size += sent
            self.left = self.left[sent:]
            if not self.left and self.is_open:
                self._go_on()
        return size

    def _go_on(self) -> None:
        following = next(self._chunks, None)
        self.left = None if following is None else memoryview(following)


class Engine:
    """The connections of one flood. sent: what was done so far: bytes, connections, closed by the broker."""

    def __init__(self, host: str, port: int, plan: Plan) -> None:
        self._address = host, port + plan.announcements
        self._plan = plan
        self.sent: Counter[str] = Counter()
        self._connections: dict[int, Connection] = {}
        self._is_stopped = False

    def stop(self) -> None:
        """End the attack early. Any thread."""
        self._is_stopped = True

    def run(self, until: float) -> None:
        """Attack until the monotonic clock says so; then reset all connections."""
        slowly_at = time.monotonic() + 1
        with select.epoll() as self._epoll:
            try:
                while (now := time.monotonic()) < until and not self._is_stopped:
                    self._connect_all()
                    for number, events in self._epoll.poll(min(_POLL_S, until - now)):
                        self._attend(self._connections[number], events)
                    if self._plan.reads is Reads.ONE_BYTE_A_SECOND and now >= slowly_at:
                        slowly_at = now + 1
                        self._read_slowly()
            finally:
                for one in self._connections.values():
                    _close(one.socket, End.RESET)
                self._connections.clear()

    # -- connections ----------------------------------------------------------------------------------------

    def _connect_all(self) -> None:
        missing = self._plan.connections - len(self._connections)
        try:
            for _ in range(min(_AT_ONCE, missing)):
                self._connect()
        except OSError:
            self.sent["not connected"] += 1
            pause(_REFUSED_S)

    def _connect(self) -> None:
        one = socket.socket()
        try:
            one.setblocking(False)
            if self._plan.receive_buffer:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._plan.receive_buffer)
            if (problem := one.connect_ex(self._address)) not in (0, errno.EINPROGRESS):
                raise OSError(problem, "not connected")
        except OSError:
            one.close()
            raise
        connection = self._connections[one.fileno()] = Connection(one, self._plan)
        connection.events = self._wanted(connection)
        self._epoll.register(one.fileno(), connection.events)
        self.sent["connections"] += 1

    def _drop(self, one: Connection, end: End = End.RESET) -> None:
        del self._connections[one.socket.fileno()]
        _close(one.socket, end)

    # -- events ---------------------------------------------------------------------------------------------

    def _wanted(self, one: Connection) -> int:
        if not one.is_open:
            return select.EPOLLRDHUP | select.EPOLLIN | (select.EPOLLOUT if one.left else 0)
        events = select.EPOLLRDHUP | (select.EPOLLOUT if one.left is not None else 0)
        return events | select.EPOLLIN if self._plan.reads is Reads.ALL else events

    def _attend(self, one: Connection, events: int) -> None:
        try:
            if events & _ENDED:
                raise ConnectionResetError
            if events & select.EPOLLIN and not one.is_open:
                one.shake_hands()
            elif events & select.EPOLLIN:
                self.sent["bytes read"] += len(one.socket.recv(_CHUNK))
            if events & select.EPOLLOUT:
                self.sent["bytes"] += one.send()
        except BlockingIOError:
            pass
        except OSError:
            self.sent["closed"] += 1
            self._drop(one)
            return
        if one.left is None and self._plan.end is not End.NEVER:
            self.sent["ended"] += 1
            self._drop(one, self._plan.end)
        elif (wanted := self._wanted(one)) != one.events:
            one.events = wanted
            self._epoll.modify(one.socket.fileno(), wanted)

    def _read_slowly(self) -> None:
        for one in [*self._connections.values()]:
            if one.is_open:
                try:
                    self.sent["bytes read"] += len(one.socket.recv(1))
                except BlockingIOError:
                    continue
                except OSError:
                    self.sent["closed"] += 1
                    self._drop(one)


def _close(one: socket.socket, end: End) -> None:
    """Close a socket without waiting for anything."""
    if end is End.RESET:
        reset(one)
    one.close()
