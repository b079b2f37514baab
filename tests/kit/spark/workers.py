"""Workers for jobs in the test's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from quoth.spark import connections

Part = TypeVar("Part")
Done = TypeVar("Done")


class LocalWorkers:
    """Runs parts in this process, one after the other; see `quoth.spark.workers.Workers`."""

    slots = 1

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        return list(map(work, parts))


def close_connections() -> None:
    """Close the clients of jobs in this process: it does what workers do, and is not killed as they are.

    They would try to reach brokers that have ended during all later tests.
    """
    while connections._clients:
        connections._clients.popitem()[1].close()
