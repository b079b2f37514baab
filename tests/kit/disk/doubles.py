"""Doubles of the file system port: a disk that fails on demand, and one that can lose its power.

`FaultyDisk` stands in front of another file system, writes down every operation, and lets the n-th of a kind
fail, short writes included, or ends the process there.

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
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from kit.deadlines import DEADLINE_S
from kit.scale import times
from quothlog.storage.filesystem import Buffer, Directory, File, FileSystem, PosixFileSystem, sync_directory

Kind = Literal["create", "open", "read", "write", "sync", "truncate", "rename", "remove", "sync_directory"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CHANGES: tuple[Kind, ...] = ("create", "write", "sync", "truncate", "rename", "remove", "sync_directory")
"""The kinds that change what is on the disk, or what is certain to be."""


class Died(BaseException):
    """The process ends here. Only the test catches it."""


class Operation(NamedTuple):
    kind: Kind
    name: str


@dataclass
class _Fault:
    kinds: Sequence[Kind]
    left: int
    problem: int | BaseException
    lasting: bool
    written: int

    def strike(self) -> bool:
        self.left -= 1
        return self.left == 0 or (self.lasting and self.left < 0)

    def raise_(self) -> None:
        problem = self.problem
        raise OSError(problem, os.strerror(problem)) if isinstance(problem, int) else problem


class SyncedBy:
    def __init__(self, sync: Callable[[], None]) -> None:
        self.sync = sync

    def close(self) -> None:
        pass


class FaultyDisk:
    """A file system in front of another one, which fails on demand.

    syncs: False only writes syncs down, for tests with thousands of them in which no power is lost.
    """

    def __init__(self, below: FileSystem | None = None, *, syncs: bool = True) -> None:
        self.syncs = syncs
        self.operations: list[Operation] = []
        self.free: int | None = None
        self._below = below or PosixFileSystem()
        self._faults: list[_Fault] = []
        self.shows_stalls = True
        """False lets a stalled thread look as if it waited for something else."""
        self._stalled = ""
        self._stalled_kinds: tuple[Kind, ...] = ()
        self._stalled_threads: set[int] = set()
        self._goes_on = threading.Event()
        self.has_stalled = threading.Event()
        self.writers: list[tuple[str, str]] = []
        """The folder and the thread of each write."""

    # -- what a test says -------------------------------------------------------------------------------

    def fail(
        self,
        kind: Kind,
        nth: int = 1,
        problem: int | BaseException = errno.EIO,
        *,
        lasting: bool = False,
        written: int = 0,
    ) -> None:
        """Let the n-th operation of a kind from now on fail, and all after it if this is lasting.

        written: bytes that reach the file before a write fails.
        """
        self._faults.append(_Fault([kind], nth, problem, lasting, written))

    def die(self, nth: int, written: int = 0) -> None:
        """Let the process end instead of the n-th change from now on; afterwards nothing is done any more."""
        self._faults.append(_Fault(CHANGES, nth, Died(f"instead of change {nth}"), True, written))

    @property
    def struck_any(self) -> bool:
        return any(fault.left <= 0 for fault in self._faults)

    def stall(self, folders: str, *kinds: Kind) -> None:
        """Let every operation of these kinds, or write, wait until `heal` below such folders."""
        self._stalled, self._stalled_kinds = folders, kinds or ("write",)
        self._goes_on.clear()
        self.has_stalled.clear()

    def heal(self) -> None:
        self._faults.clear()
        self.go_on()

    def go_on(self) -> None:
        self._stalled = ""
        self._goes_on.set()

    def count(self, *kinds: Kind) -> int:
        """Count the operations of these kinds so far, failed ones included."""
        return sum(operation.kind in kinds for operation in self.operations)

    # -- the port ---------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        if self.syncs:
            self._below.make_directory(path)
        else:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def list(self, path: Path) -> dict[str, int]:
        return self._below.list(path)

    def strange(self, path: Path) -> builtins.list[str]:
        return self._below.strange(path)

    def create(self, path: Path) -> File:
        self.note("create", path)
        return _FaultyFile(self, path, self._below.create(path))

    def open(self, path: Path, *, append: bool = False, overwrite: bool = False) -> File:
        self.note("open", path)
        return _FaultyFile(self, path, self._below.open(path, append=append, overwrite=overwrite))

    def rename(self, old: Path, new: Path) -> None:
        self.note("rename", new)
        self._below.rename(old, new)

    def remove(self, path: Path) -> None:
        self.note("remove", path)
        self._below.remove(path)

    def open_directory(self, path: Path) -> Directory:
        return SyncedBy(lambda: self._sync_directory(path))

    def _sync_directory(self, path: Path) -> None:
        self.note("sync_directory", path)
        if self.syncs:
            sync_directory(self._below, path)

    def free_bytes(self, path: Path) -> int:
        """See `FileSystem.free_bytes`: what the test says, if it says anything."""
        return self._below.free_bytes(path) if self.free is None else self.free

    def is_stalled(self, thread_id: int) -> bool:
        return self.shows_stalls and thread_id in self._stalled_threads

    def note(self, kind: Kind, path: Path) -> None:
        if (fault := self.struck(kind, path)) is not None:
            fault.raise_()

    def struck(self, kind: Kind, path: Path) -> _Fault | None:
        """Write an operation down, and tell the fault if it is its turn."""
        self.operations.append(Operation(kind, path.name))
        folder = path.parent.name
        if kind == "write":
            self.writers.append((folder, threading.current_thread().name))
        if self._stalled and kind in self._stalled_kinds and folder.startswith(self._stalled):
            self._wait()
        struck = [fault for fault in self._faults if kind in fault.kinds and fault.strike()]
        return struck[0] if struck else None

    def _wait(self) -> None:
        identity = threading.get_native_id()
        self._stalled_threads.add(identity)
        self.has_stalled.set()
        assert self._goes_on.wait(2 * DEADLINE_S), "the disk was not healed"
        self._stalled_threads.remove(identity)


class _FaultyFile:
    def __init__(self, disk: FaultyDisk, path: Path, below: File) -> None:
        self._disk = disk
        self._path = path
        self._below = below
        self.size, self.close, self.data_from = below.size, below.close, below.data_from

    def read(self, size: int, offset: int) -> bytes:
        self._disk.note("read", self._path)
        return self._below.read(size, offset)

    def read_at_hand(self, size: int, offset: int) -> Buffer | None:
        """See `File.read_at_hand`: it does not touch the disk, so it is not counted and never fails."""
        return self._below.read_at_hand(size, offset)

    def append(self, buffers: Sequence[Buffer]) -> None:
        fault = self._disk.struck("write", self._path)
        if fault is None:
            self._below.append(buffers)
            return
        if fault.written:
            self._below.append([b"".join(buffers)[: fault.written]])
            fault.written = 0
        fault.raise_()

    def overwrite(self, data: Buffer, offset: int) -> None:
        fault = self._disk.struck("write", self._path)
        self._below.overwrite(data if fault is None else data[: fault.written], offset)
        if fault is not None:
            fault.raise_()

    def sync(self) -> None:
        self._disk.note("sync", self._path)
        if self._disk.syncs:
            self._below.sync()

    def truncate(self, size: int) -> None:
        self._disk.note("truncate", self._path)
        self._below.truncate(size)


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
