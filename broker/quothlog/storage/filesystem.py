"""The port to the file system, and the real one behind it.

Every promise of the log about crashes depends on these few calls, so a test can give it a file system that
records, fails or forgets.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from quothwire.errors import error
from quothwire.native import compiled
from quothwire.text.paths import open_regular

Buffer = bytes | bytearray | memoryview

DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""The errors of a write that may succeed later, once there is room."""

PROCESS_SHORT = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""The errors of a call that was refused for want of descriptors or memory: nothing has been done."""

TEMPORARY_SUFFIX = ".tmp"
"""Behind the name of a file that is not whole yet."""

_NO_WAIT = int(getattr(os, "RWF_NOWAIT", 0))
_SEEK_DATA = getattr(os, "SEEK_DATA", None)
_BUFFERS_MAX = 1_000
"""Buffers in one writev; the smallest IOV_MAX of the systems that we run on is 1,024."""


class File(Protocol):
    """One open file. Reads may come from any thread, everything else from the owner."""

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at an offset; fewer only at the end of the file."""

    def read_at_hand(self, size: int, offset: int) -> Buffer | None:
        """Bytes at an offset if they are in memory, so that the call waits for no disk.

        None if they are not, or if the system cannot tell.
        """

    def data_from(self, offset: int) -> int:
        """Return the first offset from this one on whose byte may not be zero; the file's size for none.

        The offset itself if the system cannot tell. It costs no read: a sparse file has holes without blocks.
        """

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end, or raise OSError with any part of them written."""

    def overwrite(self, data: Buffer, offset: int) -> None:
        """Write at an offset of a file that was opened for that; OSError may leave a part of it written."""

    def size(self) -> int:
        """Bytes of the file."""

    def sync(self) -> None:
        """Return when the file's bytes and size survive a loss of power."""

    def truncate(self, size: int) -> None:
        """Cut the file."""

    def close(self) -> None:
        """Close it. A file without references is closed as well."""


class Directory(Protocol):
    """One open directory."""

    def sync(self) -> None:
        """Return when the names in it survive a loss of power."""

    def close(self) -> None:
        """Close it."""


class NotDurable(OSError):
    """The sync of a change has failed: whether it survives a loss of power is unknown."""

    def __init__(self, what: str, problem: OSError) -> None:
        super().__init__(errno.EIO, f"{what} may not survive a loss of power: {problem.strerror}")


class FileSystem(Protocol):
    """The port to a disk."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, each durable in its own parent."""

    def list(self, path: Path) -> dict[str, int]:
        """The files of a directory with their sizes. FileNotFoundError if there is no such directory."""

    def strange(self, path: Path) -> builtins.list[str]:
        """The names in a directory that are not those of regular files."""

    def create(self, path: Path) -> File:
        """Make an empty file, in place of one of that name, open for reading and appending."""

    def open(self, path: Path, *, append: bool = False, overwrite: bool = False) -> File:
        """Open a file that exists: for reading, and for appending to it or writing over it."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, in place of one of that name."""

    def remove(self, path: Path) -> None:
        """Remove a file; one that is not there is no error."""

    def open_directory(self, path: Path) -> Directory:
        """Open a directory, to sync it."""

    def free_bytes(self, path: Path) -> int:
        """Bytes that may still be written below this directory."""

    def total_bytes(self, path: Path) -> int:
        """Bytes of the disk of this directory."""

    def is_stalled(self, thread_id: int) -> bool:
        """Return True if a thread, by its native id, waits for a disk, or if the system cannot tell."""


def refuse_strange(filesystem: FileSystem, path: Path) -> None:
    """Raise ``storage_failed`` if what stands there is no regular file, or cannot be opened."""
    try:
        filesystem.open(path).close()
    except FileNotFoundError:
        return
    except OSError as problem:
        hint = "put the file back in its place, or move that away"
        raise error("storage_failed", f"{path}: {problem.strerror}", hint) from problem


def names_in(path: Path) -> Iterator[str]:
    """Yield the names in a directory of the operating system as it lists them; looks at no file."""
    with os.scandir(path) as entries:
        for entry in entries:
            yield entry.name


def is_systems(name: str) -> bool:
    """Return True for a name that is no program's data: a hidden one, or what a file system check makes."""
    return name.startswith(".") or name == "lost+found"


@compiled("quothlog._native.filesystem")
def read_now(fd: int, size: int, offset: int) -> Buffer | None:
    """Return bytes of a file at an offset; None if not all are in memory, or if the system cannot tell."""
    if not _NO_WAIT:
        return None
    data = bytearray(size)
    try:
        found = os.preadv(fd, (data,), offset, _NO_WAIT)
    except OSError:
        return None
    return data if found == size else None


class _PosixFile:
    """A regular file of the operating system."""

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = open_regular(path, flags)

    def __del__(self) -> None:
        self.close()

    def read(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) in (0, size):
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := os.pread(self._fd, missing, offset + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_at_hand(self, size: int, offset: int) -> Buffer | None:
        return read_now(self._fd, size, offset)

    def data_from(self, offset: int) -> int:
        if _SEEK_DATA is None:
            return offset
        try:
            return os.lseek(self._fd, offset, _SEEK_DATA)
        except OSError as problem:
            return max(offset, self.size()) if problem.errno == errno.ENXIO else offset

    def append(self, buffers: Sequence[Buffer]) -> None:
        for start in range(0, len(buffers), _BUFFERS_MAX):
            part = buffers[start : start + _BUFFERS_MAX]
            written = os.writev(self._fd, part)
            if written != sum(map(len, part)):
                self._append_rest(part, written)

    def _append_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def overwrite(self, data: Buffer, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._fd, rest, offset)
            rest, offset = rest[written:], offset + written

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        if sys.platform == "darwin":  # fsync leaves the bytes in the drive there
            fcntl.fcntl(self._fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)


class _PosixDirectory:
    """A directory of the operating system."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class PosixFileSystem:
    """The file system of the operating system."""

    def make_directory(self, path: Path) -> None:
        """See `FileSystem.make_directory`."""
        if not path.is_dir():
            self.make_directory(path.parent)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
        # Always: who made it may have died before this. Where the parent cannot be read, that was not us.
        with contextlib.suppress(PermissionError):
            sync_directory(self, path.parent)

    def list(self, path: Path) -> dict[str, int]:
        """See `FileSystem.list`. It lists anew if a file is removed meanwhile: one that has come in its place
        was not there to be listed."""
        while True:
            with os.scandir(path) as entries:
                files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
            with contextlib.suppress(FileNotFoundError):
                return {file.name: file.stat(follow_symlinks=False).st_size for file in files}

    def strange(self, path: Path) -> builtins.list[str]:
        """See `FileSystem.strange`."""
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]

    def create(self, path: Path) -> File:
        """See `FileSystem.create`."""
        return _PosixFile(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC)

    def open(self, path: Path, *, append: bool = False, overwrite: bool = False) -> File:
        """See `FileSystem.open`. Behind O_APPEND Linux appends whatever the offset."""
        writing = os.O_RDWR | (os.O_APPEND if append else 0)
        return _PosixFile(path, writing if append or overwrite else os.O_RDONLY)

    def rename(self, old: Path, new: Path) -> None:
        """See `FileSystem.rename`."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """See `FileSystem.remove`."""
        path.unlink(missing_ok=True)

    def open_directory(self, path: Path) -> Directory:
        """See `FileSystem.open_directory`."""
        return _PosixDirectory(path)

    def free_bytes(self, path: Path) -> int:
        """See `FileSystem.free_bytes`."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: Path) -> int:
        """See `FileSystem.total_bytes`."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def is_stalled(self, thread_id: int) -> bool:
        """See `FileSystem.is_stalled`. On Linux such a thread cannot be interrupted, or a tracer stops it."""
        try:
            stat = Path(f"/proc/self/task/{thread_id}/stat").read_bytes()
        except OSError:
            return True
        return stat.rpartition(b")")[2].split()[0] in (b"D", b"t")


def write_durably(filesystem: FileSystem, path: Path, parts: Iterable[Buffer]) -> None:
    """Put a file in place whole: written beside it, synced, renamed, the directory synced.

    What cannot be finished, on a full disk above all, is removed.
    """
    beside = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with contextlib.closing(filesystem.create(beside)) as file:
            for part in parts:
                file.append([part])
            file.sync()
        with durable_names(filesystem, path.parent):
            filesystem.rename(beside, path)
    except NotDurable:
        raise
    except OSError:
        with contextlib.suppress(OSError):
            filesystem.remove(beside)
        raise


@contextlib.contextmanager
def durable_names(filesystem: FileSystem, path: Path) -> Iterator[None]:
    """Make the names that are changed in a directory meanwhile survive a loss of power.

    Raises OSError if the directory cannot be opened, before anything is done, and `NotDurable` after it.
    """
    with contextlib.closing(filesystem.open_directory(path)) as directory:
        yield
        try:
            directory.sync()
        except OSError as problem:
            raise NotDurable(f"what was done in {path.name}", problem) from problem


def sync_directory(filesystem: FileSystem, path: Path) -> None:
    """Return when the names in a directory survive a loss of power. Raises `NotDurable`, or OSError."""
    with durable_names(filesystem, path):
        pass


def sync_file(file: File) -> None:
    """Sync a file: its content survives a loss of power afterwards. Raises `NotDurable`."""
    try:
        file.sync()
    except OSError as problem:
        raise NotDurable("what was written", problem) from problem
