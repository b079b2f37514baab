"""A double of the file system port that can lose its power.

`MemoryDisk` holds files in memory. What was synced is certain. Of what came later anything may have reached
the disk: each piece of each write, the size of a file before its bytes (they read as zeros then), and each
making, renaming and removing of a name on its own. `images` puts these together in every way, or in some;
`lose_power` leaves one of those of a disk that keeps the order of writes.
"""

from __future__ import annotations

import builtins
import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path

from kit.disk.doubles import SyncedBy
from kit.scale import times
from quothlog.storage.filesystem import Buffer, Directory, File

Image = dict[Path, bytes]
Change = tuple[int, bytes | None]
"""An offset, and the bytes that are written there; None cuts the file off."""

SUBSETS_OF = times(8, 12)  # pieces of which every subset is an image


@dataclass(eq=False)
class _Content:
    """A file's bytes: as a program sees them, as they are certain, and what happened in between."""

    now: bytearray = field(default_factory=bytearray)
    certain: bytes = b""
    changes: list[Change] = field(default_factory=list)

    def pieces(self, size: int) -> list[Change]:
        found: list[Change] = []
        for offset, data in self.changes:
            if not data:
                found.append((offset, data))
                continue
            end = offset + len(data)
            edges = [offset, *range(offset // size * size + size, end, size), end]
            found += [(a, data[a - offset : b - offset]) for a, b in pairwise(edges)]
        return found

    def image(self, pieces: Sequence[Change], has_size: bool) -> bytes:
        """Return the bytes that are left if just these pieces came, and perhaps the size before them."""
        left = bytearray(self.certain)
        for offset, data in pieces:
            if data is None:
                del left[offset:]
            else:
                left.extend(bytes(max(0, offset - len(left))))
                left[offset : offset + len(data)] = data
        if has_size:
            left.extend(bytes(max(0, len(self.now) - len(left))))
        return bytes(left)

    def survivor(self, rng: random.Random) -> bytes:
        """Return all that is certain and some of what came later, in order; perhaps zeros or stale bytes."""
        now = bytes(self.now)
        if not now.startswith(self.certain):
            return rng.choice((now, self.certain))  # it was cut
        left = now[: rng.randint(len(self.certain), len(now))]
        lost = len(now) - len(left)
        return rng.choice((now, left, left + bytes(lost), left + rng.randbytes(min(lost, 50))))


class MemoryDisk:
    """A file system in memory for one log. on_change: called after every change of it.

    The directory is made on the real disk too, since a log locks it there.
    """

    def __init__(self, files: Image | None = None, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._begin(files or {})

    def _begin(self, files: Image) -> None:
        self._certain = {path: _Content(bytearray(data), data) for path, data in files.items()}
        self._now = dict(self._certain)
        self._changes: list[dict[Path, _Content | None]] = []

    # -- what may be left ---------------------------------------------------------------------------------

    def images(self, piece: int, samples: int, rng: random.Random) -> Iterator[Image]:
        """Yield the disks that a loss of power may leave now, with pieces of so many bytes; none twice.

        All of it up to `SUBSETS_OF` pieces, else so many samples, the two extremes among them.
        """
        yielded: set[tuple[tuple[Path, bytes], ...]] = set()
        total = self._choices(piece)
        if total <= SUBSETS_OF:
            every: Iterator[Sequence[bool]] = product((False, True), repeat=total)
        else:
            shares = [0.0, 1.0, *(rng.random() for _ in range(samples))]
            every = ([rng.random() < share for _ in range(total)] for share in shares)
        for came in every:
            image = self._image(piece, came)
            key = tuple(image.items())
            if key not in yielded:
                yielded.add(key)
                yield image

    def lose_power(self, rng: random.Random) -> None:
        """Leave names as they were at some time, and beginnings of files. No file may be open."""
        names = dict(self._certain)
        for change in self._changes[: rng.randint(0, len(self._changes))]:
            _apply(change, names)
        self._begin({path: content.survivor(rng) for path, content in sorted(names.items())})

    def _contents(self) -> list[_Content]:
        changed = [one for change in self._changes for one in change.values() if one is not None]
        return list({id(one): one for one in (*self._certain.values(), *changed)}.values())

    def _choices(self, piece: int) -> int:
        """Count what may have come: names, pieces, and the size of each changed file."""
        changed = [one for one in self._contents() if one.changes]
        return len(self._changes) + sum(len(one.pieces(piece)) + 1 for one in changed)

    def _image(self, piece: int, came: Sequence[bool]) -> Image:
        choices = iter(came)
        names: dict[Path, _Content] = dict(self._certain)
        for change in self._changes:
            if next(choices):
                _apply(change, names)
        left = {}
        for one in self._contents():
            pieces = [part for part in one.pieces(piece) if next(choices)]
            left[id(one)] = one.image(pieces, has_size=bool(one.changes) and next(choices))
        return {path: left[id(content)] for path, content in sorted(names.items())}

    # -- the port -----------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def list(self, path: Path) -> dict[str, int]:
        return {file.name: len(it.now) for file, it in self._now.items() if file.parent == path}

    def strange(self, path: Path) -> builtins.list[str]:
        return []

    def create(self, path: Path) -> File:
        content = _Content()
        self._name({path: content})
        return _MemoryFile(content, self._on_change)

    def open(self, path: Path, *, append: bool = False, overwrite: bool = False) -> File:
        if path not in self._now:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return _MemoryFile(self._now[path], self._on_change)

    def rename(self, old: Path, new: Path) -> None:
        self._name({old: None, new: self._now[old]})

    def remove(self, path: Path) -> None:
        if path in self._now:
            self._name({path: None})

    def open_directory(self, path: Path) -> Directory:
        return SyncedBy(self._sync_names)

    def _sync_names(self) -> None:
        self._certain = dict(self._now)
        self._changes.clear()
        self._on_change()

    def free_bytes(self, path: Path) -> int:
        return 2**40

    def total_bytes(self, path: Path) -> int:
        return 2**41

    def is_stalled(self, thread_id: int) -> bool:
        return False

    def _name(self, change: dict[Path, _Content | None]) -> None:
        self._changes.append(change)
        _apply(change, self._now)
        self._on_change()


class _MemoryFile:
    def __init__(self, content: _Content, on_change: Callable[[], None]) -> None:
        self._content = content
        self._on_change = on_change

    def read(self, size: int, offset: int) -> bytes:
        return bytes(self._content.now[offset : offset + size])

    def read_at_hand(self, size: int, offset: int) -> bytes | None:
        data = self.read(size, offset)
        return data if len(data) == size else None

    def data_from(self, offset: int) -> int:
        return offset

    def append(self, buffers: Sequence[Buffer]) -> None:
        self.overwrite(b"".join(buffers), self.size())

    def overwrite(self, data: Buffer, offset: int) -> None:
        self._content.changes.append((offset, bytes(data)))
        self._content.now[offset : offset + len(data)] = data
        self._on_change()

    def size(self) -> int:
        return len(self._content.now)

    def sync(self) -> None:
        self._content.certain = bytes(self._content.now)
        self._content.changes.clear()
        self._on_change()

    def truncate(self, size: int) -> None:
        self._content.changes.append((size, None))
        del self._content.now[size:]
        self._on_change()

    def close(self) -> None:
        pass


def _apply(change: dict[Path, _Content | None], names: dict[Path, _Content]) -> None:
    for path, content in change.items():
        names.pop(path, None)
        if content is not None:
            names[path] = content
