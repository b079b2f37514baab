"""Fixtures for backups: a broker, its data directory, a folder for the backup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.disk.backups import DataAndBackup
from kit.machine.commands import Command

SMALL_SEGMENTS = 20_000
Revive = Callable[[Path], quoth.Client]


@pytest.fixture
def source(start_broker: StartBroker) -> BrokerProcess:
    """The broker whose data is backed up."""
    return start_broker(size_limit=SMALL_SEGMENTS)


@pytest.fixture
def place(source: BrokerProcess, alone: Command, tmp_path: Path) -> DataAndBackup:
    """The data of that broker, and a folder for the backup."""
    return DataAndBackup(alone, source.directory, tmp_path / "backup")


@pytest.fixture
def client(source: BrokerProcess) -> Iterator[quoth.Client]:
    """A client of the broker."""
    with quoth.connect(source.url) as client:
        yield client


@pytest.fixture
def revive(start_broker: StartBroker) -> Iterator[Revive]:
    """Starts a broker on a restored directory; returns a client of it."""
    clients: list[quoth.Client] = []

    def start(directory: Path) -> quoth.Client:
        clients.append(quoth.connect(start_broker(directory=directory).url))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """A file that links lead to. It must stay as it is."""
    path = tmp_path / "precious"
    path.write_text("of another user")
    yield path
    assert path.read_text() == "of another user"


@pytest.fixture
def copied(place: DataAndBackup, client: quoth.Client) -> Path:
    """The folder of the one topic in the data directory, which is backed up."""
    client.publish("orders", b"x")
    place.backup()
    (folder,) = place.data.glob("topics/*")
    return folder
