"""Fixtures of the tests of keys: key files, and brokers that require them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.keys import KeyFiles
from quothd import Broker


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    """Return the key files of a broker that has no client yet."""
    return KeyFiles(tmp_path)


@pytest.fixture
def embed_with_keys(embed: Callable[..., Broker], keys: KeyFiles) -> Callable[..., Broker]:
    """Start a broker in this process that requires keys."""

    def start(**settings: Any) -> Broker:
        return embed(**keys.settings, **settings)

    return start
