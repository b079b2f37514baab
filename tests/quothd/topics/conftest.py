"""Ways to restart a broker in the tests of topics."""

from __future__ import annotations

import pytest

from kit.broker.brokers import BrokerProcess, Restart


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
