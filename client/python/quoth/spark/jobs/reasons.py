"""Finds the error of a job that Spark broke off, and the host where it happened.

Spark's text is some hundred lines of Java's and Python's traces: the error of a Python worker stands at the
end of Python's. The host of a failed task is mostly not in it: Spark's list of tasks tells it.
"""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_TRACE = "Traceback (most recent call last):"
_TASK = re.compile(r"^.* Lost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): ")


def reason(problem: Exception, spark: SparkSession | None = None) -> str:
    """The error of a job that failed, with the host and the executor of its task if a task caused it.

    problem: what PySpark or Py4J raised. spark: the session of the job, if it has one.
    """
    text = str(problem)
    error = _of_python(text) or _first_line(text) or type(problem).__name__
    where = None if spark is None else _place(spark.sparkContext)
    return error if where is None else f"{error} ({where})"


def _of_python(text: str) -> str | None:
    """The error at the end of the last trace of Python, all lines of it; None if there is no trace."""
    _, trace, rest = text.rpartition(_TRACE)
    if not trace:
        return None
    lines = rest.strip("\n").splitlines()
    error = takewhile(lambda line: line and not line[0].isspace(), dropwhile(_is_indented, lines))
    return " ".join(error) or None


def _is_indented(line: str) -> bool:
    return line[:1].isspace()


def _first_line(text: str) -> str:
    """The first line that says what happened: that of Java begins with a colon, then maybe the task."""
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    of_java = (line.removeprefix(": ") for line in lines if line.startswith(": "))
    return _TASK.sub("", next(of_java, lines[0] if lines else ""))


def _place(context: Any) -> str | None:
    """Where a task of the newest job failed; None if that has not failed by a task, or Spark is gone."""
    try:
        context._jsc.sc().listenerBus().waitUntilEmpty()  # else the newest task may not be listed yet
        tracker = context.statusTracker()
        newest = tracker.getJobInfo(max(tracker.getJobIdsForGroup(), default=-1))
        if newest is None or newest.status != "FAILED":
            return None
        store, kinds = context._jsc.sc().statusStore(), context._jvm.org.apache.spark.status.api.v1
        for stage in newest.stageIds:
            attempt = store.lastStageAttempt(stage).attemptId()
            failed = store.taskList(stage, attempt, 0, 1, kinds.TaskSorting.ID, [kinds.TaskStatus.FAILED])
            if failed.size():
                task = failed.head()
                return f"host {task.host()}, executor {task.executorId()}"
    except (Py4JError, OSError):  # Java has ended
        return None
    return None
