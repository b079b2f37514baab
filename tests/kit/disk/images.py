"""Every disk that a loss of power may leave: a file system port that knows what is certain and what is not.

What was synced is certain. Of what came later anything may have reached the disk: each piece of each write on
its own, the size of a file before its bytes (they read as zeros then), and each making, renaming and removing
of a name on its own. `CertainDisk.images` puts these together in every way, or in some if there are too many.
"""

from __future__ import annotations

import builtins
import errno
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path

from kit.clocks import HOUR, ManualClock
from kit.disk.doubles import SyncedBy
from kit.scale import LONG
from quothlog import Log, LogOptions
from quothlog.storage.filesystem import Buffer, Directory, File

SUBSETS_OF = 12
"""Pieces of which every subset is an image: 4,096 of them."""

LOOK_AT_EVERY = 5
"""Of so many disks one is looked at without being opened."""

Image = dict[Path, bytes]


@dataclass
class _Write:
    offset: int
    data: bytes


@dataclass
class _Cut:
    size: int


@dataclass(eq=False)
class _Content:
    """A file's bytes: as a program sees them, as they are certain, and what happened in between."""

    now: bytearray = field(default_factory=bytearray)
    certain: bytes = b""
    changes: list[_Write | _Cut] = field(default_factory=list)

    def pieces(self, size: int) -> int:
        """Count the choices; the last one is whether the size came before the bytes."""
        return sum(len(parts) for parts in self._parts(size)) + bool(self.changes)

    def image(self, size: int, came: Sequence[bool]) -> bytes:
        """Return the bytes that are left if just these pieces came."""
        if not self.changes:
            return self.certain
        left, choices = bytearray(self.certain), iter(came)
        for parts in self._parts(size):
            for part in parts:
                if not next(choices):
                    continue
                if isinstance(part, _Cut):
                    del left[part.size :]
                else:
                    left.extend(bytes(max(0, part.offset - len(left))))
                    left[part.offset : part.offset + len(part.data)] = part.data
        if next(choices):
            left.extend(bytes(max(0, len(self.now) - len(left))))
        return bytes(left)

    def _parts(self, size: int) -> Iterator[list[_Write | _Cut]]:
        for change in self.changes:
            if isinstance(change, _Cut):
                yield [change]
                continue
            end = change.offset + len(change.data)
            edges = [change.offset, *range(change.offset // size * size + size, end, size), end]
            yield [
                _Write(a, change.data[a - change.offset : b - change.offset])
                for a, b in pairwise(edges)
                if a < b
            ]


@dataclass
class _Named:
    """A change of the directory: this name means that content from now on, and another one means nothing."""

    gone: Path | None
    name: Path | None = None
    content: _Content | None = None


class CertainDisk:
    """A file system in memory for one log. moment: called after every change of it.

    The directory is made on the real disk too, since a log locks it there.
    """

    def __init__(self, files: Image | None = None, moment: Callable[[], None] = lambda: None) -> None:
        contents = {path: _Content(bytearray(data), data) for path, data in (files or {}).items()}
        self._now: dict[Path, _Content] = contents
        self._certain = dict(contents)
        self._changes: list[_Named] = []
        self._moment = moment

    # -- what may be left ---------------------------------------------------------------------------------

    def images(self, piece: int, samples: int, rng: random.Random) -> Iterator[Image]:
        """Yield the disks that a loss of power may leave now, with pieces of so many bytes; none twice.

        All of it up to `SUBSETS_OF` pieces, else so many samples, the two extremes among them.
        """
        contents = list({id(one): one for one in self._contents()}.values())
        counts = [len(self._changes), *(content.pieces(piece) for content in contents)]
        total = sum(counts)
        told: set[tuple[tuple[Path, bytes], ...]] = set()
        for came in _choices(total, samples, rng):
            choices = iter(came)
            names = self._names([next(choices) for _ in range(counts[0])])
            bytes_of = {
                id(content): content.image(piece, [next(choices) for _ in range(count)])
                for content, count in zip(contents, counts[1:], strict=True)
            }
            image = {path: bytes_of[id(content)] for path, content in sorted(names.items())}
            key = tuple(image.items())
            if key not in told:
                told.add(key)
                yield image

    def _contents(self) -> Iterator[_Content]:
        yield from self._certain.values()
        yield from (change.content for change in self._changes if change.content is not None)

    def _names(self, came: Sequence[bool]) -> dict[Path, _Content]:
        names = dict(self._certain)
        for change, has_come in zip(self._changes, came, strict=True):
            if has_come:
                if change.gone is not None:
                    names.pop(change.gone, None)
                if change.name is not None and change.content is not None:
                    names[change.name] = change.content
        return names

    # -- the port -----------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        """See `FileSystem.make_directory`."""
        path.mkdir(parents=True, exist_ok=True)

    def list(self, path: Path) -> dict[str, int]:
        """See `FileSystem.list`."""
        return {file.name: len(it.now) for file, it in self._now.items() if file.parent == path}

    def strange(self, path: Path) -> builtins.list[str]:
        """See `FileSystem.strange`: there is nothing but files here."""
        return []

    def create(self, path: Path) -> File:
        """See `FileSystem.create`."""
        content = _Content()
        self._name(_Named(None, path, content))
        return _CertainFile(content, self._moment)

    def open(self, path: Path, *, append: bool = False, overwrite: bool = False) -> File:
        """See `FileSystem.open`."""
        if path not in self._now:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return _CertainFile(self._now[path], self._moment)

    def rename(self, old: Path, new: Path) -> None:
        """See `FileSystem.rename`."""
        self._name(_Named(old, new, self._now[old]))

    def remove(self, path: Path) -> None:
        """See `FileSystem.remove`."""
        if path in self._now:
            self._name(_Named(path))

    def open_directory(self, path: Path) -> Directory:
        """See `FileSystem.open_directory`."""
        return SyncedBy(self._sync_names)

    def _sync_names(self) -> None:
        self._certain = dict(self._now)
        self._changes.clear()
        self._moment()

    def free_bytes(self, path: Path) -> int:
        """See `FileSystem.free_bytes`."""
        return 2**40

    def is_stalled(self, thread_id: int) -> bool:
        """See `FileSystem.is_stalled`."""
        return False

    def _name(self, change: _Named) -> None:
        self._changes.append(change)
        if change.gone is not None:
            self._now.pop(change.gone)
        if change.name is not None and change.content is not None:
            self._now[change.name] = change.content
        self._moment()


class PowerCuts(ABC):
    """A log whose disk loses its power after every change, and each disk that this may leave, opened.

    piece, samples: see `CertainDisk.images`. share: of the disks that are opened unless all of them are.
    """

    def __init__(
        self, directory: Path, options: LogOptions, *, piece: int, samples: int, share: float, seed: int
    ) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(tick=1)
        self.disk = CertainDisk(moment=self.fail_here)
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

    def opened_on(self, disk: CertainDisk, clock: ManualClock, directory: Path) -> Log:
        """Open the log of a directory."""
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
        disk = CertainDisk(moved)
        if not is_second and self.rng.random() < 0.02:
            disk = CertainDisk(moved, moment=lambda: self._fail_again(disk))
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

    def _fail_again(self, disk: CertainDisk) -> None:
        for image in disk.images(self._piece, 4, self.rng) if self._openings else ():
            if self.rng.random() < 0.3:
                self._check(image, self.directory.with_name("left again"), is_second=True)


class _CertainFile:
    """An open file of a `CertainDisk`."""

    def __init__(self, content: _Content, moment: Callable[[], None]) -> None:
        self._content = content
        self._moment = moment

    def read(self, size: int, offset: int) -> bytes:
        return bytes(self._content.now[offset : offset + size])

    def read_at_hand(self, size: int, offset: int) -> None:
        """Not on this one: see `File.read_at_hand`."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        self._content.changes.append(_Write(len(self._content.now), data))
        self._content.now += data
        self._moment()

    def overwrite(self, data: Buffer, offset: int) -> None:
        self._content.changes.append(_Write(offset, bytes(data)))
        self._content.now[offset : offset + len(data)] = data
        self._moment()

    def size(self) -> int:
        return len(self._content.now)

    def sync(self) -> None:
        self._content.certain = bytes(self._content.now)
        self._content.changes.clear()
        self._moment()

    def truncate(self, size: int) -> None:
        self._content.changes.append(_Cut(size))
        del self._content.now[size:]
        self._moment()

    def close(self) -> None:
        pass


def _choices(pieces: int, samples: int, rng: random.Random) -> Iterator[Sequence[bool]]:
    if pieces <= SUBSETS_OF:
        yield from product((False, True), repeat=pieces)
        return
    yield [False] * pieces
    yield [True] * pieces
    for _ in range(samples):
        share = rng.random()
        yield [rng.random() < share for _ in range(pieces)]
