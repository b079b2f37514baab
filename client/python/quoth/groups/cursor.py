"""Named cursors: positions of readers that the broker keeps.

cursor = client.cursor("orders", "report")
for batch in client.batches("orders", after=cursor.pointer()):
    ...
    cursor.commit(batch.last)
"""

from __future__ import annotations

from typing import TypeVar

from quoth.core.calls import ClientState, ask, method_of
from quoth.core.request_state import ClientCall
from quoth.groups import calls
from quoth.groups.calls import GroupWork, opened
from quoth.groups.options import GroupOptions
from quoth.timestamps import Timestamp
from quothwire.errors import error
from quothwire.pointer import check_pointer
from quothwire.protocol.group_messages import CommitCursor, GroupInfo

T = TypeVar("T")


class CursorWork(GroupWork):
    """A named cursor, and the client that executes its calls."""

    def __init__(self, client: ClientState, options: GroupOptions) -> None:
        super().__init__(client, options)
        self._generation = 0
        """That of the position at which the reader began; 0 if none is known."""

    def _note_opened(self, info: GroupInfo) -> None:
        super()._note_opened(info)
        self._generation = info.generation

    def _note_moved(self, info: GroupInfo) -> None:
        self._generation = info.generation


def commit(cursor: CursorWork, pointer: int) -> ClientCall[int]:
    """Move the cursor forward to a pointer, up to which everything is done; returns where it is.

    It never moves back: a pointer in front of the cursor changes nothing. Raises `Conflict` ``lease_lost`` if
    `seek` has moved it since this object was made, or has returned `pointer` the last time.
    """
    check_pointer(pointer)
    yield from opened(cursor)
    request = CommitCursor(cursor.name, pointer, cursor._generation)
    info = yield from ask(GroupInfo, request, cursor.topic, timeout=cursor._client.timeout)
    if info.generation != cursor._generation:
        text = f"cursor {cursor.name!r} of topic {cursor.topic!r} was moved to {info.cursor} by a seek"
        raise error("lease_lost", text, "nothing was done; read on behind its pointer")
    return info.cursor


def pointer(cursor: CursorWork) -> ClientCall[int]:
    """Return the pointer up to which everything is done. Commits go on from there, also after a seek."""
    info = yield from calls.info(cursor)
    cursor._generation = info.generation
    return info.cursor


def seek(cursor: CursorWork, where: Timestamp) -> ClientCall[int]:
    """Move the cursor to another place: ``begin``, ``end``, a pointer, or a time; returns its pointer."""
    return (yield from calls.seek(cursor, where)).cursor


class NamedCursor(CursorWork):
    """A position in a topic that the broker keeps, made by `Client.cursor`. Any thread may call it."""

    def __repr__(self) -> str:
        return f"<quoth.NamedCursor {self.name!r} of {self.topic!r}>"

    def _run(self, call: ClientCall[T]) -> T:
        result: T = self._client._run(call)
        return result

    commit = method_of(commit, _run)
    pointer = method_of(pointer, _run)
    lag = method_of(calls.lag, _run)
    seek = method_of(seek, _run)
    info = method_of(calls.info, _run)
    delete = method_of(calls.delete, _run)
