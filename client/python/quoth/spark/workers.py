"""Who does the work of a job: the tasks of Spark, or this process."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from quoth.core.request_state import passes_soon
from quothwire.errors import Disconnected, QuothError

Part = TypeVar("Part")
Done = TypeVar("Done")

PATIENCE_S = 60.0
"""For how long parts are tried again that the broker could not do just then, unless others succeed."""
PAUSE_S, PAUSE_MAX_S = 0.2, 1.0
GIVEN_UP_S = 2.0
"""For how long nobody else waits for a broker that has been waited for in vain."""


class Workers(Protocol):
    """They do parts of a work, several at a time."""

    @property
    def slots(self) -> int:
        """How many at a time."""

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """What comes of each part, in their order. A part may be done more than once."""


class LocalWorkers:
    """This process, one part after the other."""

    slots = 1

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """See `Workers.each`."""
        return list(map(work, parts))


class SparkWorkers:
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


def perform(
    workers: Workers, work: Callable[[Part], Done], parts: Sequence[Part], url: str | None = None
) -> list[Done]:
    """What comes of each part, in their order, through everything that may pass by itself.

    url: the broker that all parts need. When one of them has waited for it in vain, those that come after it
    in the same process do not: else they would wait one after the other.

    Raises the first error of a part that will not pass, as it was raised in the worker.
    """
    done: dict[int, Done] = {}
    pause, until = PAUSE_S, time.monotonic() + PATIENCE_S
    while left := [number for number in range(len(parts)) if number not in done]:
        problem: QuothError | None = None
        for number, outcome in zip(
            left, workers.each(partial(_attempt, work, url), [parts[n] for n in left]), strict=True
        ):
            match outcome:
                case QuothError(retryable=True) if not isinstance(outcome, Disconnected):  # that has waited
                    problem = outcome
                case Exception():
                    raise outcome
                case _:
                    done[number] = outcome
                    until = time.monotonic() + PATIENCE_S
        if problem is not None:
            if time.monotonic() > until:
                raise problem
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)
    return [done[number] for number in range(len(parts))]


def until_next_look(began: float, every: float, problem: QuothError | None) -> float:
    """Seconds until the next look of a job that looks every so many seconds; began: when the last one did.

    A second at most after an error that passes soon: the job goes on as soon as the broker is back, however
    long it is between two looks else.
    """
    rest = max(0.0, began + every - time.monotonic())
    return min(rest, PAUSE_MAX_S) if passes_soon(problem) else rest


_in_vain: dict[str | None, tuple[float, Disconnected]] = {}
"""Until when this process does not wait for a broker again, and what it was told when it did."""


def _attempt(work: Callable[[Part], Done], url: str | None, part: Part) -> Done | QuothError | OSError:
    """An error that is told to a person comes as it is, and not as Spark's account of it."""
    until, problem = _in_vain.get(url, (0.0, None))
    if problem is None or time.monotonic() > until:
        try:
            return work(part)
        except Disconnected as found:
            problem = found
        except (QuothError, OSError) as other:
            return _with_host(other)
    _in_vain[url] = time.monotonic() + GIVEN_UP_S, problem
    return problem


def _with_host(problem: QuothError | OSError) -> QuothError | OSError:
    """The error with the name of this host if it is that of a Spark task, else as it is."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or pyspark.TaskContext.get() is None:
        return problem
    where = f"(host {socket.gethostname()})"
    if isinstance(problem, QuothError):
        return type(problem)(problem.code, f"{problem.text} {where}", problem.hint)
    if problem.errno is None:
        return problem
    return OSError(problem.errno, f"{problem.strerror} {where}", problem.filename)
