"""Keeps the collections of cyclic garbage short in a process that holds many objects for long.

Python's collector looks at every object each time a quarter of them is new. A broker with 100,000 topics or
groups would stand still for 0.2 s each time, in the thread of the front end. So what has survived a
collection of all generations is frozen: the next one looks at newer objects only. Frozen objects are freed as
usual when nothing refers to them. Cycles among them are not, so all are thawed and looked at once their
number has doubled.
"""

from __future__ import annotations

import gc

OLDEST = 2
"""The generation whose collections look at all objects that are not frozen."""
FROZEN_LEAST = 500_000
"""With fewer frozen objects, cycles among them take little memory."""


class GarbageFreezer:
    """A callback of the collector, for the life of a process. Called in the thread that collects."""

    def __init__(self) -> None:
        self._complete_above = FROZEN_LEAST
        self._is_complete = False

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Thaw before a collection of the oldest generation if that is due; freeze what has survived it."""
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            self._is_complete = gc.get_freeze_count() > self._complete_above
            if self._is_complete:
                gc.unfreeze()
            return
        gc.freeze()
        if self._is_complete:
            self._complete_above = max(FROZEN_LEAST, 2 * gc.get_freeze_count())


def shorten_collections() -> None:
    """Freeze what there is, and from now on what survives. For a process of the broker's own."""
    gc.collect()
    gc.freeze()
    gc.callbacks.append(GarbageFreezer())
