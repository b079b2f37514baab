"""A log whose disk loses its power after every change, and each disk that this may leave, opened."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from pathlib import Path

from kit.clocks import HOUR, ManualClock
from kit.disk.memory_disk import Image, MemoryDisk
from kit.scale import LONG
from quothlog import Log, LogOptions

__all__ = ["Image", "PowerCuts"]

LOOK_AT_EVERY = 5
"""Of so many disks one is looked at without being opened."""


class PowerCuts(ABC):
    """A log whose disk loses its power after every change, and each disk that this may leave, opened.

    piece, samples: see `MemoryDisk.images`. share: of the disks that are opened unless all of them are.
    """

    def __init__(
        self, directory: Path, options: LogOptions, *, piece: int, samples: int, share: float, seed: int
    ) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(tick=1)
        self.disk = MemoryDisk(on_change=self.fail_here)
        self.seen = 0
        """The newest pointer that a reader saw."""
        self.opened: set[int] = set()
        self.directory = directory
        self._options = options
        self._piece = piece
        self._samples = samples
        self._share = share
        self._openings = 0

    @abstractmethod
    def promised(self) -> tuple[Hashable, ...]:
        """Return the promises made so far, to tell states apart."""

    @abstractmethod
    def check(self, image: Image, reopened: Callable[[], Log]) -> None:
        """Hold what is left against the promises. reopened: opens it, elsewhere, after another boot."""

    def look_at(self, image: Image) -> None:  # noqa: B027
        """Hold what is left against the promises without opening it."""

    def opened_on(self, disk: MemoryDisk, clock: ManualClock, directory: Path) -> Log:
        return Log.open(directory, filesystem=disk, clock=clock, log_id=7, options=self._options)

    def fail_here(self) -> None:
        """The power fails right after this change of the disk."""
        for image in self.disk.images(self._piece, self._samples, self.rng):
            state = hash((tuple(image.items()), self.promised()))
            if state not in self.opened and (LONG or self.rng.random() < self._share):
                self.opened.add(state)
                if len(self.opened) % LOOK_AT_EVERY == 0:
                    self.look_at(image)
                self._check(image, self.directory.with_name("left"), is_second=False)

    def _check(self, image: Image, directory: Path, *, is_second: bool) -> None:
        """Open what is left. Sometimes the power fails a second time while it is opened."""
        moved = {directory / path.name: data for path, data in image.items()}
        disk = MemoryDisk(moved)
        if not is_second and self.rng.random() < 0.02:
            disk = MemoryDisk(moved, on_change=lambda: self._fail_again(disk))
        clock = ManualClock(self.clock.now() - self.rng.choice([0, HOUR]), tick=1)
        for _ in range(1 + is_second):
            clock.reboot()

        def reopened() -> Log:
            self._openings += 1
            try:
                return self.opened_on(disk, clock, directory)
            finally:
                self._openings -= 1

        self.check(moved, reopened)

    def _fail_again(self, disk: MemoryDisk) -> None:
        for image in disk.images(self._piece, 4, self.rng) if self._openings else ():
            if self.rng.random() < 0.3:
                self._check(image, self.directory.with_name("left again"), is_second=True)
