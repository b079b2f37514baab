"""A double of the file system port: a disk that fails on demand.

`FaultyDisk` stands in front of another file system, writes down every operation, and lets the n-th of a kind
fail, short writes included, or ends the process there.
"""

from __future__ import annotations

import builtins
import errno
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from kit.deadlines import DEADLINE_S
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
        self._goes_on.clear()
        self.has_stalled.clear()
        self._stalled_kinds = kinds or ("write",)
        self._stalled = folders  # at last: from now on other threads wait

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

    def total_bytes(self, path: Path) -> int:
        return self._below.total_bytes(path)

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
