"""Who does the work of a job: the tasks of Spark, or this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from quothwire.errors import QuothError

Part = TypeVar("Part")
Done = TypeVar("Done")

PATIENCE_S = 60.0
"""For how long parts are tried again that failed because the broker was away, unless others succeed."""
PAUSE_S, PAUSE_MAX_S = 0.2, 5.0


class Workers(Protocol):
    """They do parts of a work, several at a time."""

    @property
    def slots(self) -> int:
        """How many at a time."""

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """What comes of each part, in their order. A part may be done more than once."""


class Here:
    """This process, one part after the other."""

    slots = 1

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """See `Workers.each`."""
        return list(map(work, parts))


class OnSpark:
    """The executors of a Spark session, a task for each part."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext

    @property
    def slots(self) -> int:
        """See `Workers.slots`."""
        return int(self._context.defaultParallelism)

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """See `Workers.each`. A task that died is tried again as often as Spark is told to."""
        done: list[Done] = self._context.parallelize(parts, len(parts)).map(work).collect()
        return done


def perform(workers: Workers, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
    """What comes of each part, in their order, through everything that may pass by itself.

    Raises the first error of a part that will not pass, as it was raised in the worker.
    """
    done: dict[int, Done] = {}
    pause, until = PAUSE_S, time.monotonic() + PATIENCE_S
    while left := [number for number in range(len(parts)) if number not in done]:
        problem: QuothError | None = None
        for number, outcome in zip(
            left, workers.each(partial(_attempt, work), [parts[n] for n in left]), strict=True
        ):
            if isinstance(outcome, QuothError) and outcome.retryable:
                problem = outcome
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                done[number] = outcome
                until = time.monotonic() + PATIENCE_S
        if problem is not None:
            if time.monotonic() > until:
                raise problem
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)
    return [done[number] for number in range(len(parts))]


def _attempt(work: Callable[[Part], Done], part: Part) -> Done | QuothError | OSError:
    """An error that is told to a person comes as it is, and not as Spark's account of it."""
    try:
        return work(part)
    except (QuothError, OSError) as problem:
        return problem
