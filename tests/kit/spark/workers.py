"""Workers for jobs in the test's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")
Done = TypeVar("Done")


class LocalWorkers:
    """Runs parts in this process, one after the other; see `quoth.spark.workers.Workers`."""

    slots = 1

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        return list(map(work, parts))
