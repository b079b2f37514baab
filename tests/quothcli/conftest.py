"""Fixtures of the tests of the command: `quoth` as a real process, which is ended with its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.client.forwarding import Forwarding
from kit.machine.commands import Command, Running
from quoth import Client, connect
from quothlog import Log, LogOptions


@pytest.fixture
def quoth(broker: BrokerProcess, running: list[Running]) -> Command:
    """`quoth` with the broker of this file."""
    return Command(broker.url, running)


@pytest.fixture
def fill(quoth: Command, topic: str) -> Callable[..., list[int]]:
    """Publishes values to the topic of this test; returns their pointers."""

    def publish(*values: bytes) -> list[int]:
        result = quoth("pub", topic, "--format", "json", stdin=b"\n".join(values))
        (ack,) = result.objects
        assert ack["count"] == len(values), result
        return list(range(ack["first"], ack["last"] + 1))

    return publish


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An embedded log with three segments of two batches of five records."""
    directory = tmp_path / "readings"
    with Log.open(directory, options=LogOptions(count_limit=10)) as log:
        for number in range(6):
            log.append([b"%d.%d" % (number, row) for row in range(5)], keys=[b"k"] * 5)
    return directory


@pytest.fixture(autouse=True)
def _no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the contexts of the user from the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    """A client of the broker of this file."""
    with connect(broker.url) as connected:
        yield connected


@pytest.fixture
def forward(alone: Command, client: Client, topic: str, tmp_path: Path) -> Forwarding:
    """Forwards an embedded log to the broker of this file."""
    return Forwarding(alone, client, tmp_path / topic)
