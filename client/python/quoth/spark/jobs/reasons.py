"""Finds the error of a job that Spark broke off, and the host where it happened.

Spark's text is some hundred lines of Java's and Python's traces: the error of a Python worker stands at the
end of Python's. Where the text does not name the host of the failed task, Spark's list of tasks does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import dropwhile, takewhile
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_TRACE = "Traceback (most recent call last):"
_TASK = re.compile(
    r"^.* Lost task \S+ in stage \S+ \(TID \d+\) \((?P<host>\S+) executor (?P<executor>[^)]*)\): ",
    re.MULTILINE,
)
_TASKS_MAX = 100
"""Failed tasks of a stage that are compared with an error, newest first."""


def reason(problem: Exception, spark: SparkSession | None = None) -> str:
    """The error of a job that failed, with the host and the executor of its task if a task caused it.

    problem: what PySpark or Py4J raised. spark: the session of the job, if it has one.
    """
    text = str(problem)
    error = _of_python(text) or _first_line(text) or type(problem).__name__
    where = _TASK.search(text)
    if where is not None:
        return f"{error} (host {where['host']}, executor {where['executor']})"
    task = None if spark is None else failed_task(spark.sparkContext, error)
    return error if task is None else f"{error} (host {task.host()}, executor {task.executorId()})"


def failed_task(context: Any, error: str) -> Any | None:
    """The newest task that failed with an error, as Spark's status store has it.

    error: as `reason` gives it. None if a task is not its cause, or Java has ended.
    """
    with suppress(Py4JError, OSError):  # Java has ended
        context._jsc.sc().listenerBus().waitUntilEmpty()  # else the newest task may not be listed yet
        for task in _failed_tasks(context):
            message = task.errorMessage()
            if message.isDefined() and error in " ".join(message.get().splitlines()):
                return task
    return None


def _failed_tasks(context: Any) -> Iterator[Any]:
    """The failed tasks of the failed jobs, newest first."""
    tracker = context.statusTracker()
    store, kinds = context._jsc.sc().statusStore(), context._jvm.org.apache.spark.status.api.v1
    failed, by_id = [kinds.TaskStatus.FAILED], kinds.TaskSorting.ID
    for number in sorted(tracker.getJobIdsForGroup(), reverse=True):
        job = tracker.getJobInfo(number)
        if job is None or job.status != "FAILED":
            continue
        for stage in sorted(job.stageIds, reverse=True):
            attempt = store.lastStageAttempt(stage).attemptId()
            tasks = store.taskList(stage, attempt, 0, 2**31 - 1, by_id, failed).takeRight(_TASKS_MAX)
            yield from (tasks.apply(at) for at in reversed(range(tasks.size())))


def _of_python(text: str) -> str | None:
    """The error at the end of the last trace of Python, all lines of it; None if there is no trace."""
    _, trace, rest = text.rpartition(_TRACE)
    if not trace:
        return None
    error = dropwhile(lambda line: line[:1].isspace(), rest.strip("\n").splitlines())
    return " ".join(takewhile(lambda line: line and not line[0].isspace(), error)) or None


def _first_line(text: str) -> str:
    """The first line that says what happened: that of Java begins with a colon, then maybe the task."""
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    of_java = (line.removeprefix(": ") for line in lines if line.startswith(": "))
    return _TASK.sub("", next(of_java, lines[0] if lines else ""))
