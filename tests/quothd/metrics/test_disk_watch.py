"""The free space of the disk, and a disk that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.disk.doubles import FaultyDisk
from quothd.metrics.disk_watch import LOOK_S, DiskLevel, DiskWatch, Space


class Held:
    """Work that was submitted, until the test executes it."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], Space], Callable[[Space], None]]] = []

    def submit(self, work: Callable[[], Space], back: Callable[[Space], None]) -> None:
        self.work.append((work, back))

    def execute(self) -> None:
        work, back = self.work.pop()
        back(work())


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (99, DiskLevel.READ_ONLY),
        (100, DiskLevel.LOW),
        (199, DiskLevel.LOW),
        (200, DiskLevel.FINE),
        (0, DiskLevel.READ_ONLY),
    ],
)
def test_level_follows_from_the_free_space(tmp_path: Path, free: int, level: DiskLevel) -> None:
    disk, held = FaultyDisk(), Held()
    disk.free = free
    watch = DiskWatch(disk, tmp_path, held.submit)
    assert watch.gauges(100) == {}
    watch.tick(1.0)
    held.execute()
    found = watch.gauges(100)
    assert (found["disk_free_bytes"], found["disk_level"]) == (free, level)
    assert found["disk_total_bytes"] > 2**20


def test_a_disk_without_a_limit_is_never_low(tmp_path: Path) -> None:
    disk, held = FaultyDisk(), Held()
    disk.free = 0
    watch = DiskWatch(disk, tmp_path, held.submit)
    watch.tick(1.0)
    held.execute()
    assert watch.gauges(0)["disk_level"] == DiskLevel.FINE


def test_the_next_look_waits_for_one_that_has_not_come_back(tmp_path: Path) -> None:
    held = Held()
    watch = DiskWatch(FaultyDisk(), tmp_path, held.submit)
    for now in (0.0, LOOK_S, 100 * LOOK_S):
        watch.tick(now)
    assert len(held.work) == 1
    held.execute()
    watch.tick(100 * LOOK_S)
    assert len(held.work) == 1


def test_a_directory_that_is_gone_has_no_known_space(tmp_path: Path) -> None:
    held = Held()
    watch = DiskWatch(FaultyDisk(), tmp_path / "gone", held.submit)
    watch.tick(0.0)
    held.execute()
    assert watch.gauges(100) == {}
    watch.tick(LOOK_S)
    assert held.work, "it looks again"
