"""Forwarding progress: files that say up to where a log was forwarded, so that it may remove the records.

A mark is a small file in the log's directory, NAME.forward, replaced atomically as long as there is room for
a second one. Its author holds no lock. The log's owner reads it, and removes the segments all of whose
records every mark has passed, if one of them asks for that. While the log has no owner, `trim_unowned` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from quothlog import file_format
from quothlog.recovery.snapshot import segments
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.filesystem import DISK_FULL, PosixFileSystem, durable_names, write_durably
from quothwire.errors import Conflict, QuothError, error
from quothwire.pointer import POINTER_MAX

_BYTES_MAX = 2**16


def write_mark(path: Path, content: Mapping[str, Any]) -> None:
    """Write a mark so that a crash leaves the old one or this one.

    content: `pointer` (everything up to it is safe) and `trim` (it may go), beside what its author needs.
    """
    text = (json.dumps({"version": file_format.VERSION, **content}, indent=1) + "\n").encode()
    try:
        write_durably(PosixFileSystem(), path, [text])
    except OSError as problem:
        if problem.errno not in DISK_FULL:
            raise
        _write_over(path, text, problem)


def _write_over(path: Path, text: bytes, problem: OSError) -> None:
    """Put a mark where the old one lies: the full disk has no room for another, and this one makes it.

    Whatever a crash leaves of the two releases nothing unless it is whole.
    """
    try:
        file = PosixFileSystem().open(path, overwrite=True)
        file.overwrite(text.ljust(file.size()), 0)
        file.sync()
    except OSError:
        raise problem from None


def read_mark(path: Path) -> dict[str, Any] | None:
    """Read a mark; None if there is none.

    Raises `Damaged`, or ``unsupported_version`` for one of another version; both name the file.
    """
    try:
        content = json.loads(PosixFileSystem().open(path).read(_BYTES_MAX, 0))
    except FileNotFoundError:
        return None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise error("damaged", f"{path} is no mark", "remove it to begin anew")
    if content.get("version") != file_format.VERSION:
        raise file_format.of_another_version(f"{path} is a mark", content.get("version"))
    pointer = content.get("pointer")
    if (
        not isinstance(pointer, int)
        or not 0 <= pointer < POINTER_MAX
        or not isinstance(content.get("trim"), bool)
    ):
        raise error("damaged", f"{path} says no pointer", "remove it to begin anew")
    return content


def is_mark_of(path: Path, directory: Path) -> bool:
    """Return True if a file of this name is a mark of the log in that directory."""
    return path.suffix == file_format.MARK_SUFFIX and path.parent.resolve() == directory.resolve()


def released(directory: Path) -> int:
    """Return the pointer up to which everything may be removed, 0 for nothing.

    A mark that cannot be read releases nothing.
    """
    try:
        found = [read_mark(path) for path in directory.glob(f"*{file_format.MARK_SUFFIX}")]
    except (QuothError, OSError):
        return 0
    marks = [mark for mark in found if mark is not None]
    wanted = any(mark["trim"] for mark in marks)
    return min((int(mark["pointer"]) for mark in marks), default=0) if wanted else 0


def trim_unowned(directory: Path) -> int:
    """Remove what has been released from a log that has no owner now; returns the bytes removed.

    It holds the log's lock for that moment. An owner does it itself, so then nothing is done here.
    """
    gone = _wholly_up_to(directory, released(directory))
    if not gone:
        return 0
    try:
        lock = DirectoryLock(directory)
    except Conflict:
        return 0
    size = 0
    try:
        filesystem = PosixFileSystem()
        with durable_names(filesystem, directory):
            for floor in gone:
                path = directory / file_format.segment_name(floor)
                with suppress(FileNotFoundError):
                    size += path.stat().st_size
                filesystem.remove(path.with_suffix(file_format.INDEX_SUFFIX))
                filesystem.remove(path)
    finally:
        lock.release()
    return size


def _wholly_up_to(directory: Path, pointer: int) -> list[int]:
    """The floors of the segments that hold only pointers up to this one. Names alone do not tell: a copy of
    a segment under another name ends none."""
    if not pointer:
        return []
    try:
        old = takewhile(lambda part: part.misplaced or part.below <= pointer + 1, segments(directory, 0))
        return [part.floor for part in old if not part.misplaced]
    except FileNotFoundError:
        return []
