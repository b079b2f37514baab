"""The reason of a job that Spark aborted: the error of the worker, unchanged, and the host."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException

from quoth.spark.jobs.reasons import failed_task, reason

WHERE = r" \(host \S+, executor driver\)"


def refuse(_: object) -> None:
    raise ValueError("the record\nis too long")


def refuse_for_a_reason(_: object) -> None:
    try:
        refuse(_)
    except ValueError as problem:
        raise RuntimeError("the task has failed") from problem


def crash(_: object) -> None:
    os._exit(3)


def said_of(spark: Any, act: Callable[[], object]) -> str:
    """The reason that is given for what is raised."""
    with pytest.raises((PySparkException, Py4JError)) as raised:
        act()
    return reason(raised.value, spark)


@pytest.mark.usefixtures("by_value")
@pytest.mark.parametrize(
    ("work", "error"),
    [
        (refuse, "ValueError: the record is too long"),
        (refuse_for_a_reason, "RuntimeError: the task has failed"),
        (crash, "org.apache.spark.SparkException: Python worker exited unexpectedly.*"),
    ],
)
def test_error_of_a_worker_is_named_with_its_host(spark: Any, work: Any, error: str) -> None:
    said = said_of(spark, lambda: spark.sparkContext.parallelize([1], 1).map(work).collect())
    assert re.fullmatch(error + WHERE, said), said


@pytest.mark.usefixtures("by_value")
def test_named_host_is_that_of_the_task_with_the_error(spark: Any) -> None:
    def work(number: int) -> None:
        if number == 1:
            raise ValueError(f"fatal\n{number}")
        if TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
            raise ValueError("transient")

    parts = spark.sparkContext.parallelize([0, 1], 2)
    said = said_of(spark, lambda: parts.map(work).collect())
    parts.count()  # a newer job, which succeeds
    task = failed_task(spark.sparkContext, "ValueError: fatal 1")
    assert task is not None
    assert task.index() == 1
    assert re.fullmatch("ValueError: fatal 1" + WHERE, said), said
    assert failed_task(spark.sparkContext, "ValueError: fatal 2") is None


def test_host_is_the_one_in_the_text_where_it_has_one() -> None:
    text = (
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 3 in stage 5.0 failed 4 times, most recent failure: Lost task 3.3 in stage 5.0 "
        "(TID 70) (worker-2 executor 7): java.io.IOException: No space left on device\n\tat java.base/java.io"
    )
    assert reason(Py4JError(text)) == (
        "java.io.IOException: No space left on device (host worker-2, executor 7)"
    )


def test_error_of_planning_is_named_without_a_host(spark: Any) -> None:
    with pytest.raises(PySparkException):  # a job that failed before is not its cause
        spark.sql("SELECT raise_error('x') FROM range(1)").collect()
    source = spark.read.format("quoth").option("url", "tcp://127.0.0.1:1")
    said = said_of(spark, lambda: source.load().collect())
    assert said.startswith("quothwire.errors.RequestError: bad_request: which topics?")
    assert "executor" not in said
    assert said_of(spark, lambda: spark.read.parquet("/missing")).startswith("[PATH_NOT_FOUND] ")
