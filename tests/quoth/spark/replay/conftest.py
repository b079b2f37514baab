"""Fixtures of the tests of replays."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.spark.replays import SMALL, Record, parts_of, replayed, some_records, write_archive
from quoth import Client
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.inputs import ReplayRequest, input_of
from quoth.spark.replay.replayer import Replayer, StreamTally
from quoth.spark.workers import LocalWorkers


@pytest.fixture
def replay(client: Client, root: Path, topic: str, told: list[str]) -> Callable[..., StreamTally]:
    """Replays what lies at `root` into the topic of the test: `replay(since=5)`."""

    def run(
        path: Path = root, *, limits: ChunkLimits = SMALL, workers: Any = None, **wish: Any
    ) -> StreamTally:
        source = input_of(path, ReplayRequest(**{"to": (topic,), **wish}))
        replayer = Replayer(client, source, workers or LocalWorkers(), told.append, limits)
        replayer.run()
        [one] = replayer.tallies.values()
        return one

    return run


@pytest.fixture
def archived(root: Path, rng: random.Random) -> Callable[[int, int], list[Record]]:
    """Writes an archive of the topic `orders` at `root`: `archived(500, 7)` records in files."""

    def write(count: int, files: int) -> list[Record]:
        records = some_records(rng, count)
        write_archive(root, "orders", parts_of(records, files))
        return records

    return write


@pytest.fixture
def stored(client: Client, topic: str) -> Callable[[], list[Record]]:
    """Reads what was replayed into the topic of the test."""
    return lambda: replayed(client, topic)
