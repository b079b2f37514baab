"""Fixtures for tests of programs that use Quoth: a real broker for each test, started in milliseconds.

    pytest_plugins = ["pytest_quoth"]          # in the root's conftest.py, or: pytest -p pytest_quoth

    def test_an_order_is_published(quoth_client):
        take_order("milk", quoth_client)
        assert [message.value for message in quoth_client.read("orders")] == [b"milk"]

    @pytest.mark.quoth(durability="synced", max_bytes=10_000_000)
    def test_the_shop_runs_as_a_process(quoth_broker):
        subprocess.run(["shop", "--broker", quoth_broker.url], check=True)

Each broker has a directory of its own below the `tmp_path` of its test and free ports on loopback, so tests
run in parallel. The marker `quoth` takes every key of the configuration except `dir`. A marker of a class or
a module applies to all its tests, and the nearest one wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quoth
from quothd import Broker
from quothwire.errors import QuothError, error

MARKER = "quoth"
DIRECTORY = "quoth-data"
"""The broker's data directory below `tmp_path`."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    line = f"{MARKER}(**keys): keys of the configuration for `quoth_broker`, like durability='synced'"
    config.addinivalue_line("markers", line)


@pytest.fixture
def quoth_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker in this process, which other processes reach at its `url`.

    The test may stop and start it. It has other ports then, unless the marker has `port`. A broker that
    failed by itself fails the test.
    """
    try:
        broker = Broker(tmp_path / DIRECTORY, **{"host": "127.0.0.1", **_keys(request.node)}).start()
    except QuothError as problem:
        pytest.fail(str(problem), pytrace=False)
    try:
        yield broker
    finally:
        failure = broker.failure
        broker.stop()
    if failure is not None:
        raise failure


@pytest.fixture
def quoth_client(quoth_broker: Broker) -> Iterator[quoth.Client]:
    """A client of `quoth_broker`, connected as from another process."""
    with quoth.connect(quoth_broker.url) as client:
        yield client


def _keys(node: Any) -> dict[str, Any]:
    """Return the keys in the markers of a test. The nearest marker wins."""
    keys: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(MARKER))):
        if marker.args or "dir" in marker.kwargs:
            text = f"pytest.mark.{MARKER} takes keys of the configuration by name, and not dir"
            raise error("bad_setting", text, f"like @pytest.mark.{MARKER}(durability='synced')")
        keys |= marker.kwargs
    return keys
