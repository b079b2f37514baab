"""A broker with keys, and key files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.client.keyed import KeyedBroker
from kit.keys import KeyFiles


@pytest.fixture
def files(tmp_path: Path) -> KeyFiles:
    """The key files of a broker that has no client yet."""
    return KeyFiles(tmp_path)


@pytest.fixture
def keyed(start_broker: StartBroker, files: KeyFiles) -> KeyedBroker:
    """A broker that knows alice."""
    return KeyedBroker(start_broker, files)
