"""Fixtures of the tests of archives: archiving and compaction in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.spark.archives import FILE_BYTES, publish
from quoth import Client
from quoth.spark.archive import archived_files, compaction
from quoth.spark.archive.archiver import ArchiveTally, Policy, TopicArchiver
from quoth.spark.archive.compaction import Compacted
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.workers import LocalWorkers, Workers


@pytest.fixture
def archiver(client: Client, root: Path, topic: str, told: list[str]) -> Callable[..., TopicArchiver]:
    """Makes an archiver of the test's topic, in small files: `archiver(trim=True)`."""

    def make(
        topics: Any = topic, broker: Client = client, sleep: Any = time.sleep, **policy: Any
    ) -> TopicArchiver:
        wanted = Policy(**{"file_bytes": FILE_BYTES, **policy})
        return TopicArchiver(broker, root, LocalWorkers(), topics, wanted, told.append, sleep)

    return make


@pytest.fixture
def archive(archiver: Callable[..., TopicArchiver]) -> Callable[..., ArchiveTally]:
    """Archives what is there: `archive(trim=True)`; returns the counts."""

    def run(*which: Any, **policy: Any) -> ArchiveTally:
        made = archiver(*which, **policy)
        made.run()
        return made.tally

    return run


@pytest.fixture
def compact(root: Path) -> Callable[..., Compacted]:
    """Compacts the archive; returns the counts."""

    def run(workers: Workers = LocalWorkers(), keep_replaced: float = 0, **options: Any) -> Compacted:  # noqa: B008
        with ArchiveStore(root) as store:
            return compaction.compact(store, workers, keep_replaced=keep_replaced, **options)

    return run


@pytest.fixture
def files(client: Client, archive: Callable[..., ArchiveTally], root: Path, topic: str) -> list[Path]:
    """The files of an archive of the test's topic, by two runs of several files each."""
    for run in range(2):
        publish(client, topic, [40, 40, 3], f"run {run}")
        archive()
    return list(map(Path, archived_files(root)))
