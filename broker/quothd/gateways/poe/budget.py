"""Bounds the memory of the large frames of all connections.

A connection waits until there is room for its large frame. The longest wait ends first, but a topic gets half
of the room at most: those that wait for more of it let frames of other topics pass. A connection that keeps
others from room is ended after a short time, if it waits for its client, or for another topic than they do.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

PRESSED_S = 1.0
"""A connection gets so long for a large frame while others wait for room: on loopback it takes 20 ms."""


class HeldBytes:
    """The bytes of a budget that one connection holds, and the topic of its frame.

    end: ends the connection. waits_since: when it began to wait with them; infinity while it does not.
    is_at_broker: True if it waits for the broker, and not for its client.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        self.size = 0
        self.topic = ""
        self.waits_since = math.inf
        self.is_at_broker = False

    def begin_wait(self, *, at_broker: bool = False) -> None:
        """Note that the connection waits from now on: for its client, or for the broker."""
        self.waits_since = time.monotonic()
        self.is_at_broker = at_broker

    def end_wait(self) -> None:
        """Note that it does not any more."""
        self.waits_since = math.inf


class _Waiter(NamedTuple):
    """A connection that waits for so many bytes."""

    held: HeldBytes
    size: int
    granted: asyncio.Future[None]


class ByteBudget:
    """The bytes that all connections may hold. Belongs to one event loop."""

    def __init__(self, total: int, pressed: float = PRESSED_S) -> None:
        self._left = total
        self._share = total // 2
        self._pressed = pressed
        self._holders: set[HeldBytes] = set()
        self._waiters: list[_Waiter] = []
        self._topics = Counter[str]()
        """The bytes that are held for each topic."""

    @contextmanager
    def holder(self, end: Callable[[], None]) -> Iterator[HeldBytes]:
        """Let a connection hold bytes; the end of the block gives them back."""
        held = HeldBytes(end)
        self._holders.add(held)
        try:
            yield held
        finally:
            self._holders.remove(held)
            self.keep(held, 0)

    async def take(self, held: HeldBytes, size: int, topic: str) -> None:
        """Wait for so many bytes for a frame of a topic. size: at most all of the budget. held: has none."""
        held.topic = topic
        waiter = _Waiter(held, size, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._grant()
        try:
            while not waiter.granted.done():
                done, _ = await asyncio.wait((waiter.granted,), timeout=self._pressed)
                if not done:
                    self._end_overdue(waiter)
        finally:
            if waiter in self._waiters:  # cancelled
                self._waiters.remove(waiter)
                self._grant()

    def keep(self, held: HeldBytes, size: int) -> None:
        """Give back all but so many bytes."""
        self._change(held, size)
        self._grant()

    def _change(self, held: HeldBytes, size: int) -> None:
        self._left += held.size - size
        self._topics[held.topic] += size - held.size
        if not self._topics[held.topic]:
            del self._topics[held.topic]
        held.size = size

    def _grant(self) -> None:
        """Give bytes to those that wait, in their order."""
        for waiter in tuple(self._waiters):
            if self._is_above_share(waiter):
                continue
            if waiter.size > self._left:
                break
            self._waiters.remove(waiter)
            self._change(waiter.held, waiter.size)
            waiter.granted.set_result(None)

    def _is_above_share(self, waiter: _Waiter) -> bool:
        """Return True if others hold so much for the topic that it may have no more. One may have all."""
        taken = self._topics.get(waiter.held.topic, 0)
        return bool(taken) and taken + waiter.size > self._share

    def _end_overdue(self, waiter: _Waiter) -> None:
        """End the connections that have kept one from room for long.

        One that waits for the share of its topic ends none that waits for the broker, as it would, too.
        """
        overdue = time.monotonic() - self._pressed
        own_only = self._is_above_share(waiter)
        for held in self._holders:
            if not held.size or held.waits_since > overdue:
                continue
            if not own_only or (held.topic == waiter.held.topic and not held.is_at_broker):
                held.end()
