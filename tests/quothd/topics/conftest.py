"""Fixtures of the tests of topics: a broker with the settings of a file, and ways to restart one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker.brokers import BrokerProcess, Restart


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker process for all tests of a file, with the file's `SETTINGS`. Use `topic` for names."""
    settings = getattr(request.module, "SETTINGS", {})
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", **settings)
    try:
        yield broker.start()
    finally:
        broker.close()
    assert not broker.complaints, broker.stderr


def no_restart(_broker: BrokerProcess) -> None:
    """The broker runs on."""


def stop(broker: BrokerProcess) -> None:
    """A clean restart."""
    assert broker.terminate() == 0
    broker.restart()


def kill(broker: BrokerProcess) -> None:
    """A crash and a restart."""
    broker.kill()
    broker.restart()


@pytest.fixture(params=[no_restart, stop, kill])
def restart(request: pytest.FixtureRequest) -> Restart:
    """Restarts a broker, or does not; the test runs once for each way."""
    way: Restart = request.param
    return way
