"""Fixtures of the tests of replays."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kit.spark.replays import Replaying
from quoth import Client


@pytest.fixture
def scene(client: Client, root: Path, topic: str, rng: random.Random) -> Replaying:
    """A place, and the test's topic."""
    return Replaying(client, root, topic, rng)
