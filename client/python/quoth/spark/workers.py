"""Runs the parts of a job in parallel, as tasks of Spark."""

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

RETRY_S = 60.0
"""Seconds for which parts with retryable errors are tried again while no other part succeeds."""
PAUSE_S, PAUSE_MAX_S = 0.2, 1.0
GIVEN_UP_S = 2.0
"""Seconds for which a process does not wait again for a broker that did not answer in time."""


class Workers(Protocol):
    """Executes the parts of a job."""

    @property
    def slots(self) -> int:
        """The number of parts that run at the same time."""

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """Return the result of each part, in their order. A part may run more than once."""


class SparkWorkers:
    """Runs parts on the executors of a Spark session, a task for each part."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext

    @property
    def slots(self) -> int:
        """See `Workers.slots`."""
        return int(self._context.defaultParallelism)

    def each(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        """See `Workers.each`. Spark repeats failed tasks as configured."""
        done: list[Done] = self._context.parallelize(parts, len(parts)).map(work).collect()
        return done


def perform(
    workers: Workers, work: Callable[[Part], Done], parts: Sequence[Part], url: str | None = None
) -> list[Done]:
    """Return the result of each part, in their order; parts with retryable errors are repeated.

    url: the broker that all parts need. After a part has waited for it in vain, later parts in the same
    process fail at once: else they would wait one after the other.

    Raises the first error that is not retryable, as it was raised in the worker.
    """
    done: dict[int, Done] = {}
    pause, until = PAUSE_S, time.monotonic() + RETRY_S
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
                    until = time.monotonic() + RETRY_S
        if problem is not None:
            if time.monotonic() > until:
                raise problem
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)
    return [done[number] for number in range(len(parts))]


def until_next_look(began: float, every: float, problem: QuothError | None) -> float:
    """Seconds until the next round of a job with an interval of `every` seconds; began: time of the last
    round.

    At most a second after an error that passes soon, so that a job goes on when the broker is back, however
    long its interval is.
    """
    rest = max(0.0, began + every - time.monotonic())
    return min(rest, PAUSE_MAX_S) if passes_soon(problem) else rest


_in_vain: dict[str | None, tuple[float, Disconnected]] = {}
"""For each broker that did not answer: the time until which it is not waited for, and the error."""


def _attempt(work: Callable[[Part], Done], url: str | None, part: Part) -> Done | QuothError | OSError:
    """Run a part; returns its errors, because Spark would wrap them in its own."""
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
    """Return the error, with the name of this host if it comes from a Spark task."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or pyspark.TaskContext.get() is None:
        return problem
    where = f"(host {socket.gethostname()})"
    if isinstance(problem, QuothError):
        return type(problem)(problem.code, f"{problem.text} {where}", problem.hint)
    if problem.errno is None:
        return problem
    return OSError(problem.errno, f"{problem.strerror} {where}", problem.filename)
