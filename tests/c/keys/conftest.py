"""A broker behind a door that wants keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.client.doors import Doors

DoorsOf = Callable[[BrokerProcess], Doors]


@pytest.fixture
def doors_of(tmp_path: Path) -> Iterator[DoorsOf]:
    """Make doors, all closed, of a broker."""
    with ExitStack() as stack:

        def make(broker: BrokerProcess) -> Doors:
            doors = Doors(broker.url, tmp_path)
            stack.callback(doors.close)
            return doors

        yield make


@pytest.fixture
def doors(broker: BrokerProcess, doors_of: DoorsOf) -> Doors:
    """The doors of the broker of the file. One is open for alice."""
    doors = doors_of(broker)
    doors.open(doors.alice)
    return doors
