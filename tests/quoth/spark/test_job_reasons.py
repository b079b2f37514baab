"""What is said of a job that Spark broke off: the error of the worker in its own words, and the host."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from quoth.spark.jobs.reasons import reason

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
def test_error_of_a_query_is_named_with_its_host(spark: Any) -> None:
    def fail(batches: Any) -> Any:
        refuse(batches)
        yield

    said = said_of(spark, spark.range(1).mapInArrow(fail, "id LONG").collect)
    assert re.fullmatch("ValueError: the record is too long" + WHERE, said), said


def test_error_of_planning_is_named_without_a_host(spark: Any) -> None:
    source = spark.read.format("quoth").option("url", "tcp://127.0.0.1:1")
    assert said_of(spark, lambda: source.load().collect()).startswith(
        "quothwire.errors.RequestError: bad_request: which topics?"
    )
    assert said_of(spark, lambda: spark.read.parquet("/missing")).startswith("[PATH_NOT_FOUND] ")
