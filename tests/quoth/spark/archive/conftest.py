"""Fixtures of the tests of archives: archiving and compaction in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.spark.archives import Archiving
from quoth import Client
from quoth.spark.archive import archived_files


@pytest.fixture
def scene(client: Client, root: Path, topic: str) -> Archiving:
    """The test's topic, and an archive of it."""
    return Archiving(client, root, topic)


@pytest.fixture
def files(scene: Archiving) -> list[Path]:
    """The files of an archive of the test's topic, by two runs of several files each."""
    for run in range(2):
        scene.publish([40, 40, 3], f"run {run}")
        scene.archive()
    return list(map(Path, archived_files(scene.root)))
