"""Named cursors, for an event loop: see `quoth.groups.cursor`."""

from __future__ import annotations

from typing import TypeVar

from quoth.core.calls import coroutine_of
from quoth.core.request_state import ClientCall
from quoth.groups import calls, cursor
from quoth.groups.cursor import CursorWork

T = TypeVar("T")


class NamedCursor(CursorWork):
    """A position in a topic that the broker keeps, made by `Client.cursor`: see `quoth.NamedCursor`."""

    def __repr__(self) -> str:
        return f"<quoth.aio.NamedCursor {self.name!r} of {self.topic!r}>"

    async def _run(self, call: ClientCall[T]) -> T:
        result: T = await self._client._run(call)
        return result

    commit = coroutine_of(cursor.commit, _run)
    pointer = coroutine_of(cursor.pointer, _run)
    lag = coroutine_of(calls.lag, _run)
    seek = coroutine_of(cursor.seek, _run)
    info = coroutine_of(calls.info, _run)
    delete = coroutine_of(calls.delete, _run)
