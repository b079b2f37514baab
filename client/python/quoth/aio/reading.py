"""Reading several topics in an event loop: `quoth.reading`, awaited."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any, Self

from quoth.aio.io_thread import IOThread
from quoth.aio.iterators import LoopIterator
from quoth.aio.requests import LoopMultiplexer
from quoth.core.calls import ClientState
from quoth.core.options import as_seconds
from quoth.merging.multi_reader import MultiReader
from quoth.message import Message
from quoth.reading import ReadingState


class Reading(ReadingState[LoopMultiplexer], LoopIterator[Message]):
    """Records of several topics; made by `Client.tail_many` and `Client.read_many`.

    See `quoth.Reading`. One task at a time may wait for it; an error ends it. Once it was awaited, or
    entered, it has begun: it yields everything that is published later. A `quoth.Cursor` changes only during
    a wait.
    """

    def __init__(self, client: ClientState, io_thread: IOThread, reader: MultiReader) -> None:
        LoopIterator.__init__(self, client, io_thread, "this reading", "a reading")
        super().__init__(reader, LoopMultiplexer(io_thread), io_thread.endpoint.url)
        if not self._reader.is_begun:
            self._ask(math.inf)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begun().__await__()

    async def __aenter__(self) -> Self:
        return await self._begun()

    async def __aexit__(self, *_: object) -> None:
        self._end()

    async def close(self) -> None:
        """End it, and give its requests up. Does nothing the second time."""
        self._end()

    def portions(self, every: float = math.inf) -> Portions:
        """Iterate over the records, as many at once as may be handed out; an empty list after `every`
        seconds.

        Raises `NotFound` when a topic that was named is deleted, and what `on_gap` raises.
        """
        return Portions(self, as_seconds(every, "every"))

    async def _begin(self) -> None:
        while not (self._reader.is_begun or self._is_over):
            self._ask(math.inf)
            await self._hear(math.inf)

    async def _find_more(self) -> None:
        portion = await self._take_out(math.inf, math.inf)
        self._found = iter(portion or ())

    async def _portion(self, every: float, silent_until: float) -> list[Message]:
        """Return the next portion, an empty one if nothing has come by then."""
        with self._alone():
            portion = await self._take_out(every, silent_until)
        if portion is None:
            raise StopAsyncIteration
        return portion

    async def _take_out(self, every: float, silent_until: float) -> list[Message] | None:
        """Wait for the next portion; return an empty one if nothing has come by then, None at the end."""
        while not self._is_over:
            self._ask(every)
            portion = self._reader.hand_out()
            if portion is not None:
                return portion
            if self._reader.is_over:
                self._is_over = True
            elif not await self._hear(silent_until) and time.monotonic() >= silent_until:
                return []
        return None

    def _ask(self, every: float) -> None:
        self._io_thread.check()
        super()._ask(every)

    async def _hear(self, until: float) -> bool:
        """Wait for answers until a time, or until the next request is due; False if there are none."""
        began = time.monotonic()
        return self._take(await self._requests.hear(min(until, self._reader.due) - began), began)

    def _end(self) -> None:
        super()._end()
        self._requests.close()
        self._requests.wake()


class Portions:
    """Made by `Reading.portions`; may be left and begun again at any time."""

    def __init__(self, reading: Reading, every: float) -> None:
        self._reading = reading
        self._every = every
        self._silent_until: float | None = None
        """None between two waits: the time that the application takes is no silence."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Message]:
        """Return the next portion."""
        if self._silent_until is None:
            self._silent_until = time.monotonic() + self._every
        portion = await self._reading._portion(self._every, self._silent_until)
        self._silent_until = None
        return portion
