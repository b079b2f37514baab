"""The channels of one client: a call takes one for itself, so any thread may call.

A forked child inherits descriptors that its parent goes on using, so it forgets them and opens its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from quoth.channel import Channel, Context
from quothwire.errors import Disconnected, QuothError, error


class Pool:
    """Idle channels, last used first. It grows with the number of calls that run at once."""

    def __init__(self, url: str, context: Context | None) -> None:
        self.url = url
        self._given = context
        self._lock = threading.Lock()
        self._idle: list[Channel] = []
        self._closed = False
        self._open()

    @contextmanager
    def channel(self) -> Iterator[Channel]:
        """A channel for one call. It is thrown away if the call ends with an outcome that is not known."""
        channel = self._take()
        keep = False
        try:
            yield channel
            keep = True
        except QuothError as problem:
            keep = not isinstance(problem, Disconnected)
            raise
        except zmq.ContextTerminated:
            raise error("closed", "the client or the broker in this process was closed") from None
        finally:
            if keep:
                self._put(channel)
            else:
                channel.close()

    @property
    def context(self) -> Context:
        """The context that sockets of this process are made in. Raises `Disconnected` ``closed``."""
        if self._closed:
            raise error("closed", "the client is closed")
        if os.getpid() != self._pid:
            self._forget_parent()
        return self._context

    def close(self) -> None:
        """Close the channels; calls that are under way end with an error."""
        if os.getpid() != self._pid:  # the lock may be held for ever here, and the channels are the parent's
            self._closed = True
            _parents.append((self._context, self._idle))
            return
        with self._lock:
            closed, self._closed = self._closed, True
            idle, self._idle = self._idle, []
        if closed:
            return
        for channel in idle:
            channel.close()
        if self._given is None:
            # Waits for channels that are in a call: theirs end with ContextTerminated.
            self._context.term()

    def _take(self) -> Channel:
        context = self.context
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Channel(context, self.url)

    def _put(self, channel: Channel) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(channel)
                return
        channel.close()

    def _open(self) -> None:
        self._context: Context = self._given or zmq.Context()
        self._pid = os.getpid()

    def _forget_parent(self) -> None:
        if self._given is not None:
            raise error("closed", "a broker inside the parent process cannot be reached from a forked child")
        with _forgetting:
            if os.getpid() == self._pid:
                return
            _parents.append((self._context, self._idle))
            # The lock may have been held by a thread that does not exist here.
            self._lock = threading.Lock()
            self._idle = []
            self._open()


_forgetting = threading.Lock()
_parents: list[object] = []
"""Sockets of a parent process: kept, because closing them here would disturb it."""
