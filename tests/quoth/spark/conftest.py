"""Fixtures of the tests on Spark: one session for all tests of a process.

A session takes eight seconds to start, and a gigabyte. Whatever uses one is marked `spark`, and `tools/check`
runs those by themselves, in two processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.model import BrokerModel
from kit.spark.sparks import SPARK_TEST_S, Queries
from kit.spark.workers import close_connections


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a Spark session, and give it time: such a test may take half a minute on a machine that
    is not busy, and the first one starts the session besides."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SPARK_TEST_S))


@pytest.fixture(scope="module", autouse=True)
def connections_end() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture
def model() -> BrokerModel:
    """An empty broker in memory."""
    return BrokerModel()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of an archive."""
    return tmp_path / "archive"


@pytest.fixture
def reports() -> list[str]:
    """The lines that jobs report."""
    return []


@pytest.fixture
def queries(spark: Any, tmp_path: Path) -> Iterator[Queries]:
    """The runs of one streaming query."""
    yield Queries(tmp_path / "checkpoint")
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Classes of the test's file travel to Spark's processes, which cannot import it."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(request.module)  # type: ignore[no-untyped-call]
