"""Cursors of a reader in a file, one for each topic: everything up to the cursor is done.

A consumer advances it when the work on a record is done, and saves it now and then; `Client.tail` does both
for a cursor that it is given. After a crash the consumer repeats the work since the last save and leaves none
out. Effects that must happen once go into one transaction with their cursor, as in
client/examples/sqlite_cursor.py.

    {
      "cursor": 1,                                      the version of this format
      "topics": {
        "orders": {
          "after": 1767323045000001,                    the pointer of the last record that is done
          "time": "2026-01-02T03:04:05.000001Z",        the same as a time, by which damage is detected
          "log": "5be1c2f0a7d94e63",                    the id of the topic's log
          "ordinal": 1000                               the number of records that it had held by then
        }
      }
    }

By the log's id and the ordinal a resumed reader knows exactly how many records are gone, and notices a topic
that was deleted and created again. They are left out if they are not known.

A new file is written beside the old one, synced and renamed, then the folder is synced. A crash at any moment
leaves the old or the new file, whole. A lock beside it keeps a second program away.
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
"""100,000 topics with the longest names. A larger file is no cursor and is not read."""
EXPECTED_MAX = 1_000
"""Batches of a topic whose ordinals are kept until the cursor has passed them."""
_LOG_DIGITS = 16


class Position(NamedTuple):
    """The position of a reader in one topic: everything up to the pointer `after` is done.

    log: the id of the topic's log, 0 if not known. ordinal: the number of records that it had held by then,
    -1 if not known.
    """

    after: int
    log: int = 0
    ordinal: int = -1


class Cursor(Closeable):
    """Positions of a reader in topics, kept in a file. Belongs to one thread, and to one process.

    path: a file; the first `save` creates it if it does not exist. Raises `Damaged` if it holds no cursor,
    `RequestError` ``unsupported_version`` for another version, ``bad_request`` if the path is no file,
    ``bad_setting`` for an empty path, `Conflict` ``locked`` while another program uses it, and OSError if it
    cannot be read or written. In all these cases the file stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = given_path(path, "a cursor's file")
        self.path = Path(os.path.realpath(given))  # a link stays: the file that it leads to is replaced
        self._changed = False
        self._expected: dict[str, deque[_Records]] = {}
        there = _exists(self.path)
        self._lock = FileLock(self.path)
        with self._lock.opening():
            self._positions = _decode(self.path, _content(self.path)) if there else {}

    def close(self) -> None:
        """Save the cursor and release the file. Does nothing the second time."""
        try:
            if self._lock.is_held:
                self.save()
        finally:
            self._lock.release()

    # -- positions --------------------------------------------------------------------------------------

    @property
    def topics(self) -> list[str]:
        """The topics with a position."""
        return list(self._positions)

    def after(self, topic: str) -> int | None:
        """Return the pointer up to which everything of a topic is done, None if it has no position."""
        position = self._positions.get(topic)
        return None if position is None else position.after

    def position(self, topic: str) -> Position | None:
        """Return the position in a topic, None if it has none."""
        return self._positions.get(topic)

    # -- moving it --------------------------------------------------------------------------------------

    @overload
    def advance(self, done: Message, /) -> None: ...
    @overload
    def advance(self, topic: str, pointer: int, /) -> None: ...
    def advance(self, done: Message | str, pointer: int | None = None, /) -> None:
        """Note that everything of a topic up to a record or pointer is done. In memory, until the next
        `save`.

        A pointer in front of the cursor changes nothing.
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
        """Set the first position in a topic; changes nothing if it has a position."""
        if topic not in self._positions:
            self._positions[topic] = position
            self._changed = True

    def expect(self, batch: Batch, log: int) -> None:
        """Keep the ordinals of records that will be handed out, for `advance`."""
        expected = self._expected.setdefault(batch.topic, deque(maxlen=EXPECTED_MAX))
        expected.append(_Records(batch.first, batch.last, batch.ordinal, log))

    def _position_at(self, topic: str, pointer: int) -> Position:
        expected = self._expected.get(topic)
        while expected and expected[0].last < pointer:
            expected.popleft()
        if not expected or pointer < expected[0].first:
            return Position(pointer)
        first, _, ordinal, log = expected[0]
        return Position(pointer, log, ordinal + pointer - first + 1)

    # -- the file ---------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the positions to the file, durably, if they have changed.

        Raises OSError if that fails: the file has its old or its new content; the next call tries again.
        """
        if not self._changed:
            return
        if not self._lock.is_held:
            raise error("closed", "the cursor was closed, or stayed with the process that opened it")
        _write_durably(self.path, _encode(self._positions))
        self._changed = False


def positions_in(path: str | os.PathLike[str]) -> dict[str, Position]:
    """Return the positions in a cursor's file, without its lock. Raises as `Cursor`."""
    at = given_path(path, "a cursor's file")
    return _decode(at, _content(at)) if _exists(at) else {}


class _Records(NamedTuple):
    """Consecutive records of a log."""

    first: int
    last: int
    ordinal: int
    log: int


def _exists(path: Path) -> bool:
    """Return True if the file exists. Raises ``bad_request`` or OSError if the path cannot be used."""
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
    """Return the content of the file."""
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
    """Return the positions in a file's content. Raises `Damaged`, or ``unsupported_version``."""
    try:
        found = json.loads(content)
        version = found["cursor"]
        if type(version) is not int:
            raise TypeError(f"{version!r} is no version")
        if version != VERSION:
            text = f"{path} is a cursor of version {version}, this program knows version {VERSION}"
            raise error("unsupported_version", text, "it was left as it is: give another file")
        return {check_topic(topic): _position_of(stored) for topic, stored in found["topics"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise _no_cursor(path, f"{type(problem).__name__}: {problem}") from None
    except QuothError as problem:
        if problem.code == "unsupported_version":
            raise
        raise _no_cursor(path, problem.text) from None


def _position_of(stored: dict[str, Any]) -> Position:
    after, ordinal = pointers.check_pointer(stored["after"]), stored.get("ordinal", -1)
    if stored.get("time", pointers.to_text(after)) != pointers.to_text(after):
        raise ValueError(f"{stored['time']!r} is not the time of {after}")
    if type(ordinal) is not int or not -1 <= ordinal < 2**63:
        raise ValueError(f"{ordinal!r} is no ordinal")
    log = stored.get("log", "")
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
    """Replace a file as a whole. Removes the new file if it cannot be finished, as on a full disk."""
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
