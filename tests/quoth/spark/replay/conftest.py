"""Fixtures of the tests of replays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.spark.replays import SMALL
from quoth import Client
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.inputs import ReplayRequest, input_of
from quoth.spark.replay.replayer import Replayer, StreamTally
from quoth.spark.workers import LocalWorkers

Replay = Callable[..., StreamTally]


@pytest.fixture
def replay(client: Client, root: Path, topic: str, told: list[str]) -> Replay:
    """Replays what lies at `root` into the topic of the test: `replay(since=5)`."""

    def run(
        path: Path = root, *, limits: ChunkLimits = SMALL, workers: Any = None, **wish: Any
    ) -> StreamTally:
        source = input_of(path, ReplayRequest(**{"to": (topic,), **wish}))
        replayer = Replayer(client, source, workers or LocalWorkers(), told.append, limits=limits)
        replayer.run()
        [one] = replayer.tally.streams.values()
        return one

    return run
