"""Fixtures of the tests of consumer groups: a topic with groups, in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.disk.doubles import FaultyDisk
from kit.disk.memory_disk import MemoryDisk
from kit.groups.group_topics import GroupTopic


@pytest.fixture
def faulty() -> FaultyDisk:
    """A disk in memory that fails on demand."""
    return FaultyDisk(MemoryDisk())


@pytest.fixture
def open_groups(tmp_path: Path, faulty: FaultyDisk) -> Callable[..., GroupTopic]:
    """Open a topic on `faulty` that has a group `g` with these settings."""

    def open_it(**settings: Any) -> GroupTopic:
        topic = GroupTopic(tmp_path, faulty)
        topic.make_group(**{"backoff": [0.0], **settings})
        return topic

    return open_it
