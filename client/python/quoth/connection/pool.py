"""The pool of one client's channels: each call takes one for itself, so any thread may call.

A forked child inherits descriptors that its parent goes on using. It forgets them and opens its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias
from weakref import finalize

import zmq

from quoth.connection.channel import Channel
from quoth.connection.connection import Context, terminate
from quoth.connection.endpoint import Endpoint
from quoth.core.options import Timing
from quothwire.errors import Disconnected, QuothError, error

SLOTS_MAX = 32
"""Channels that stay with their iterators: each may hold a prefetched MiB, and four descriptors."""


Slot: TypeAlias = object
"""Stands for an iterator that keeps its channel between calls: the answer to its prefetch comes on it."""


class Pool:
    """Idle channels, last used first. It grows with the number of calls that run at once."""

    def __init__(self, endpoint: Endpoint, context: Context | None, timing: Timing) -> None:
        self.endpoint = endpoint
        self.timing = timing
        self._given = context
        self._lock = threading.RLock()  # an iterator may be collected at any moment
        self.is_closed = False
        self._open()

    def _open(self) -> None:
        self._context: Context = self._given or zmq.Context()
        self._idle: list[Channel] = []
        self._slots: dict[Slot, Channel] = {}
        self._pid = os.getpid()
        # The end of a context waits for its sockets, and the collector may end the context of a cycle first.
        self._finalizer = finalize(self, _close_all, self._pid, self._idle, self._slots)
        self._finalizer.atexit = False

    def channel(self, slot: Slot = None) -> Loan:
        """Lend a channel to one call. It is closed if the outcome of the call is not known.

        slot: holds the channel to take, and gets it back.
        """
        return Loan(self, slot)

    @contextmanager
    def slot(self) -> Iterator[Slot]:
        """Lend a slot to an iterator, which may never be resumed."""
        slot = Slot()
        try:
            yield slot
        finally:
            self.release(slot)

    def release(self, slot: Slot) -> None:
        """Return the channel that a slot holds to the pool."""
        if os.getpid() == self._pid:
            with self._lock:
                channel = self._slots.pop(slot, None)
                if channel is not None:
                    self.put(channel)

    @property
    def context(self) -> Context:
        """The context of this process's sockets. Raises `Disconnected` ``closed``."""
        if self.is_closed:
            raise error("closed", "the client is closed")
        if os.getpid() != self._pid:
            self._forget_parent()
        return self._context

    def close(self) -> None:
        """Close the channels. Calls that are under way end with an error."""
        if os.getpid() != self._pid:  # the lock may be held for ever here, and the channels are the parent's
            self.is_closed = True
            _parents.append((self._context, self._idle, self._slots))
            return
        with self._lock:
            was_closed, self.is_closed = self.is_closed, True
            self._finalizer()
        if not was_closed and self._given is None:
            terminate(self._context)

    def take(self, slot: Slot) -> Channel:
        """Take a channel out of the pool, or make one."""
        context = self.context
        with self._lock:
            if slot is not None and slot in self._slots:
                return self._slots.pop(slot)
            if self._idle:
                return self._idle.pop()
        return Channel(context, self.endpoint, self.timing)

    def put(self, channel: Channel, slot: Slot = None) -> None:
        """Return a channel to the pool."""
        with self._lock:
            if self.is_closed:
                channel.close()
            elif slot is None or len(self._slots) >= SLOTS_MAX:
                self._idle.append(channel)
            else:
                self._slots[slot] = channel

    def _forget_parent(self) -> None:
        if self._given is not None:
            raise error("closed", "a broker inside the parent process cannot be reached from a forked child")
        with _forgetting:
            if os.getpid() != self._pid:
                _parents.append((self._context, self._idle, self._slots))
                self._finalizer.detach()
                # The lock may have been held by a thread that does not exist here.
                self._lock = threading.RLock()
                self._open()


def _close_all(pid: int, idle: list[Channel], slots: dict[Slot, Channel]) -> None:
    """Close the channels of a pool, in the process that opened them."""
    while pid == os.getpid() and (idle or slots):
        channel = idle.pop() if idle else slots.popitem()[1]
        channel.close()


class Loan:
    """A channel of a pool that is lent to one call: see `Pool.channel`."""

    __slots__ = ("_channel", "_pool", "_slot")

    def __init__(self, pool: Pool, slot: Slot) -> None:
        self._pool = pool
        self._slot = slot

    def __enter__(self) -> Channel:
        self._channel = channel = self._pool.take(self._slot)
        return channel

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or (issubclass(kind, QuothError) and not issubclass(kind, Disconnected)):
            self._pool.put(self._channel, self._slot)
        else:
            self._channel.close()


_forgetting = threading.Lock()
_parents: list[object] = []
"""Sockets of a parent process: kept, because closing them here would disturb it."""
