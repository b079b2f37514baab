"""The inbox: the only door of a worker.

Readers and the sync thread put something in at any time. The front end hands its jobs over at the end of a
turn, all at once: the worker wakes once for them, takes them as one burst, and finds the interpreter free.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue

from quothd.job import Job


class Inbox:
    """Items for one worker, in order. Any thread puts, the worker takes, the front end hands over."""

    def __init__(self) -> None:
        self._items: SimpleQueue[object] = SimpleQueue()
        self._given: list[Job] = []

    def put(self, item: object) -> None:
        """Put something in."""
        self._items.put(item)

    def give(self, job: Job) -> None:
        """A job that goes in with the next `hand_over`."""
        self._given.append(job)

    def hand_over(self) -> None:
        """Put in what was given."""
        for job in self._given:
            self._items.put(job)
        self._given.clear()

    def get(self) -> object:
        """Wait for the next item."""
        return self._items.get()

    def take(self, burst: deque[object], most: int, seconds: float) -> None:
        """Move what is there, at most so many items, to the end of a burst; wait so long for the first."""
        with suppress(Empty):
            burst.append(self._items.get(timeout=seconds))
            while len(burst) < most:
                burst.append(self._items.get_nowait())

    def empty(self) -> bool:
        """Is there nothing in it now?"""
        return self._items.empty()

    def leftover(self) -> list[Job]:
        """The jobs in it, once the worker has ended. For the front end, who alone gives them."""
        self.hand_over()
        found: list[Job] = []
        while not self._items.empty():
            item = self._items.get()
            found += [item] if isinstance(item, Job) else []
        return found
