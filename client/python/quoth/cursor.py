"""A reader's cursor in a file: "everything up to here is done", for one topic or several.

A consumer advances it when the work on a record is done, and saves it now and then; `Client.tail` does both
for a cursor that it is given. So after a crash it does the work since the last save again and leaves none
out; effects that must come once go into one transaction with their cursor, as
client/examples/sqlite_cursor.py does.

    {
      "cursor": 1,                                      the version of this format
      "topics": {
        "orders": {
          "after": 1767323045000001,                    the pointer of the last record that is done
          "time": "2026-01-02T03:04:05.000001Z",        the same as a time: damage is seen by it
          "log": "5be1c2f0a7d94e63",                    which topic of this name that was
          "ordinal": 1000                               how many records it had held by then
        }
      }
    }

The log's id and the ordinal make a resumed reader's account exact: it tells how many records are gone, and
that a topic was deleted and made anew. They are left out where they are not known.

A new file is written beside the old one, synced and renamed, then the folder is synced: whatever dies in
between, the old or the new one is there, whole. A lock beside it keeps a second program away.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, overload

from quoth.batch import Batch
from quoth.filelock import FileLock
from quoth.message import Message
from quothwire import pointer as pointers
from quothwire.closing import Closeable
from quothwire.errors import QuothError, error
from quothwire.text.paths import given_path
from quothwire.topic import check_topic

VERSION = 1
TEMPORARY_SUFFIX = ".tmp"
BYTES_MAX = 64 * 2**20
"""100,000 topics with the longest names; anything larger is no cursor and is not read."""
STRETCHES_MAX = 1_000
"""Batches of a topic whose ordinals are remembered until the cursor has passed them."""
_LOG_DIGITS = 16


class Position(NamedTuple):
    """How far a reader of one topic is: `after` is the pointer up to which all is done.

    log: id of the topic's log, 0 if not known. ordinal: records that it had held by then, -1 if not known.
    """

    after: int
    log: int = 0
    ordinal: int = -1


class Cursor(Closeable):
    """Positions of a reader in topics, kept in a file. Belongs to one thread, and to one process.

    path: a file, or nothing yet: then it is made by the first `save`. Raises `Damaged` if it holds no cursor,
    `RequestError` ``unsupported_version`` for one of another version, ``bad_request`` for what is no file,
    ``bad_setting`` for an empty path,
    `Conflict` ``locked`` while another program goes on with it, and OSError if it cannot be read or written.
    In all these cases the file stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = given_path(path, "a cursor's file")
        self.path = Path(os.path.realpath(given))  # a link stays one: what it leads to is replaced
        self._changed = False
        self._stretches: dict[str, deque[_Stretch]] = {}
        there = _check_place(self.path)
        self._lock = FileLock(self.path)
        with self._lock.opening():
            self._positions = _decode(self.path, _content(self.path)) if there else {}

    def close(self) -> None:
        """Save what was advanced, and let others have the file. Does nothing the second time."""
        try:
            if self._lock.is_held:
                self.save()
        finally:
            self._lock.release()

    # -- where it stands --------------------------------------------------------------------------------

    @property
    def topics(self) -> list[str]:
        """The topics that it knows something of."""
        return list(self._positions)

    def after(self, topic: str) -> int | None:
        """The pointer up to which everything of a topic is done, None if nothing is known of it."""
        position = self._positions.get(topic)
        return None if position is None else position.after

    def position(self, topic: str) -> Position | None:
        """All that is known of a topic."""
        return self._positions.get(topic)

    # -- moving it --------------------------------------------------------------------------------------

    @overload
    def advance(self, done: Message, /) -> None: ...
    @overload
    def advance(self, topic: str, pointer: int, /) -> None: ...
    def advance(self, done: Message | str, pointer: int | None = None, /) -> None:
        """Everything of a topic up to this record, or pointer, is done. In memory, until the next `save`.

        What lies before the cursor is done already and changes nothing.
        """
        if isinstance(done, Message):
            topic, pointer = done.topic, done.pointer
        else:
            topic, pointer = check_topic(done), pointers.check_pointer(-1 if pointer is None else pointer)
        position = self._positions.get(topic)
        if position is None or pointer > position.after:
            self._changed = True
            self._positions[topic] = self._position_at(topic, pointer)

    def begin(self, topic: str, position: Position) -> None:
        """Where the reading of a topic begins that nothing is known of yet."""
        if topic not in self._positions:
            self._positions[topic] = position
            self._changed = True

    def expect(self, batch: Batch, log: int) -> None:
        """These records of a topic's log will be handed out: so `advance` can tell their ordinals."""
        stretches = self._stretches.setdefault(batch.topic, deque(maxlen=STRETCHES_MAX))
        stretches.append(_Stretch(batch.first, batch.last, batch.ordinal, log))

    def _position_at(self, topic: str, pointer: int) -> Position:
        stretches = self._stretches.get(topic)
        while stretches and stretches[0].last < pointer:
            stretches.popleft()
        if not stretches or pointer < stretches[0].first:
            return Position(pointer)
        first, _, ordinal, log = stretches[0]
        return Position(pointer, log, ordinal + pointer - first + 1)

    # -- the file ---------------------------------------------------------------------------------------

    def save(self) -> None:
        """Put it into the file, so that it survives a crash and a loss of power; nothing if nothing changed.

        Raises OSError if that fails: the file is as it was, or as it should be; the next call tries again.
        """
        if not self._changed:
            return
        if not self._lock.is_held:
            raise error("closed", "the cursor was closed, or stayed with the process that opened it")
        _write_durably(self.path, _encode(self._positions))
        self._changed = False


def positions_in(path: str | os.PathLike[str]) -> dict[str, Position]:
    """What a cursor's file says now, for whoever only looks; nothing if there is none. Raises as `Cursor`."""
    at = given_path(path, "a cursor's file")
    return _decode(at, _content(at)) if _check_place(at) else {}


class _Stretch(NamedTuple):
    """Consecutive records of a log."""

    first: int
    last: int
    ordinal: int
    log: int


def _check_place(path: Path) -> bool:
    """Is there a file? Raises ``bad_request`` or OSError if there can be none."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "no file"
        raise error("bad_request", f"{path} is {what}", "a cursor is kept in a file of its own")
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return True


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise _no_cursor(path, f"it has more than {BYTES_MAX} bytes")
    return content


def _encode(positions: dict[str, Position]) -> bytes:
    """The content of the file."""
    topics: dict[str, Any] = {}
    for topic, (after, log, ordinal) in positions.items():
        topics[topic] = {"after": after, "time": pointers.to_text(after)}
        if log:
            topics[topic]["log"] = f"{log:0{_LOG_DIGITS}x}"
        if ordinal >= 0:
            topics[topic]["ordinal"] = ordinal
    content = {"cursor": VERSION, "topics": topics}
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def _decode(path: Path, content: bytes) -> dict[str, Position]:
    """The positions in a file's content. Raises `Damaged`, or ``unsupported_version``."""
    try:
        found = json.loads(content)
        version = found["cursor"]
        if type(version) is not int:
            raise TypeError(f"{version!r} is no version")
        if version != VERSION:
            text = f"{path} is a cursor of version {version}, this program knows version {VERSION}"
            raise error("unsupported_version", text, "it was left as it is: give another file")
        return {check_topic(topic): _position_of(said) for topic, said in found["topics"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise _no_cursor(path, f"{type(problem).__name__}: {problem}") from None
    except QuothError as problem:
        if problem.code == "unsupported_version":
            raise
        raise _no_cursor(path, problem.text) from None


def _position_of(said: dict[str, Any]) -> Position:
    after, ordinal = pointers.check_pointer(said["after"]), said.get("ordinal", -1)
    if said.get("time", pointers.to_text(after)) != pointers.to_text(after):
        raise ValueError(f"{said['time']!r} is not the time of {after}")
    if type(ordinal) is not int or not -1 <= ordinal < 2**63:
        raise ValueError(f"{ordinal!r} is no ordinal")
    log = said.get("log", "")
    if not isinstance(log, str) or len(log) not in (0, _LOG_DIGITS):
        raise ValueError(f"{log!r} is no id of a log")
    return Position(after, int(log or "0", 16), ordinal)


def _no_cursor(path: Path, why: str) -> QuothError:
    return error(
        "damaged",
        f"{path} holds no cursor: {why}",
        "it was left as it is: mend it, or give another file; without it, say where to begin",
    )


def _write_durably(path: Path, content: bytes) -> None:
    """Put a file in place whole. What cannot be finished, on a full disk above all, is removed."""
    beside = path.with_name(path.name + TEMPORARY_SUFFIX)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            _write(beside, content)
            os.replace(beside, path)
        except OSError:
            with suppress(OSError):
                beside.unlink()
            raise
        os.fsync(folder)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from None
    finally:
        os.close(folder)


def _write(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.writev(fd, [rest]) :]
        os.fsync(fd)
    finally:
        os.close(fd)
