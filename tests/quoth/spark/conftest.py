"""What the tests on Spark share: one session for all of them, in one process.

A session takes eight seconds to start, so there is one a run. Whatever uses it is marked `spark`, and
`tools/check` runs those by themselves.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.queries import Queries
from kit.sparks import java_is_there, session
from quoth.spark import connections


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a Spark session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session", autouse=True)
def connections_end() -> Iterator[None]:
    """Close the connections of this process: it does what workers do, and is not killed as they are."""
    yield
    for client in connections._clients.values():
        client.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Spark session: two tasks at a time, four attempts each."""
    if not java_is_there():
        pytest.skip("there is no Java 17 or newer: apt-get install openjdk-17-jre-headless")
    directory = tmp_path_factory.mktemp("spark")
    with session("local[2,4]", directory) as spark:
        yield spark
    shutil.rmtree(directory, ignore_errors=True)


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
