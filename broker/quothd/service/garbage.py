"""Keeps the collections of cyclic garbage short in a process that holds many objects for long.

Python's collector looks at every object each time a quarter of them is new. A broker with 100,000 topics or
groups would stand still for 0.2 s each time, in the thread of the front end. So what has survived a
collection of all generations is frozen: the next one looks at newer objects only. Frozen objects are freed as
usual when nothing refers to them. Cycles among them are not; a complete collection finds these once an hour.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

OLDEST = 2
"""The generation whose collections look at all objects that are not frozen."""
COMPLETE_S = 3_600.0
"""Between two complete collections, which take 1 us an object at worst."""


class GarbageFreezer:
    """A callback of the collector, for the life of a process. Called in the thread that collects."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._complete_at = monotonic() + COMPLETE_S

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Thaw before a collection of the oldest generation if that is due; freeze what has survived it."""
        if info["generation"] != OLDEST:
            return
        if phase == "stop":
            gc.freeze()
        elif (now := self._monotonic()) >= self._complete_at:
            self._complete_at = now + COMPLETE_S
            gc.unfreeze()


def shorten_collections(monotonic: Callable[[], float]) -> None:
    """Freeze what there is, and from now on what survives. For a process of the broker's own."""
    gc.freeze()
    gc.callbacks.append(GarbageFreezer(monotonic))
