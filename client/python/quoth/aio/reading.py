"""Reading several topics in an event loop: `quoth.reading`, awaited.

As with the iterators of one topic, what is read is taken out when nothing is waited for any more, and what is
on its way stays on its way. So a wait that is cancelled loses nothing: the next one goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from quoth.aio.io_thread import IOThread
from quoth.aio.request_mux import LoopMultiplexer
from quoth.core.deadline import as_seconds
from quoth.core.multi_reader import MultiReader, ReadPlan
from quoth.message import Message, OnGap
from quothwire.errors import error

if TYPE_CHECKING:
    from quoth.aio.client import Client


class Reading:
    """Records of several topics; made by `Client.tail_many` and `Client.read_many`.

    See `quoth.Reading`. One task at a time waits for it; an error ends it. When it was awaited, or entered,
    it has begun: all that is published later is in it. A `quoth.Cursor` changes only while it is waited for.
    """

    def __init__(
        self,
        client: Client,
        courier: IOThread,
        topics: str | Iterable[str],
        plan: ReadPlan,
        on_gap: OnGap | None,
    ) -> None:
        self._questions = LoopMultiplexer(courier)
        self._gathering = MultiReader(topics, plan, on_gap, client.timeout)
        self._client = client
        """Kept, since the connections end with it."""
        self._courier = courier
        self._found: Iterator[Message] = iter(())
        self._is_awaited = self._is_over = False
        if not self._gathering.is_begun:
            self._ask(math.inf)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begun().__await__()

    async def __aenter__(self) -> Self:
        return await self._begun()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        self._questions.drop()

    async def close(self) -> None:
        """End it: what is on its way is of no use any more. Does nothing the second time."""
        self._end()

    async def aclose(self) -> None:
        """End it, as any asynchronous iterator is ended."""
        self._end()

    # -- for the application ----------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next record."""
        while True:
            for message in self._found:
                return message
            self._found = iter(await self._portion(math.inf, math.inf))

    def portions(self, every: float = math.inf) -> Portions:
        """The records, as many at once as may be handed out; nothing after `every` seconds of silence.

        Raises `NotFound` when a topic that was named is deleted, and what `on_gap` raises.
        """
        return Portions(self, as_seconds(every, "every"))

    @property
    def topics(self) -> list[str]:
        """The topics that are read now, as far as they are known before it has begun."""
        return self._gathering.topics

    @property
    def watermark(self) -> int:
        """Everything up to this pointer has been handed out, of all topics; 0 if they are not ordered."""
        return self._gathering.watermark

    @property
    def late(self) -> int:
        """Records that came after a younger one of another topic, because the broker's clock stepped back."""
        return self._gathering.late

    @property
    def waiting_for(self) -> dict[str, str]:
        """The topics that hold back the next record, each with the reason; none if no record is held back."""
        return self._gathering.waiting_for(away=None if self._questions.connected else self._courier.url)

    # -- asking and hearing -----------------------------------------------------------------------------

    async def _begun(self) -> Self:
        with self._alone():
            while not (self._gathering.is_begun or self._is_over):
                self._ask(math.inf)
                await self._hear(math.inf)
        return self

    async def _portion(self, every: float, silent_until: float) -> list[Message]:
        """The next one, an empty one if nothing has come by then."""
        with self._alone():
            while not self._is_over:
                self._ask(every)
                portion = self._gathering.hand_out()
                if portion is not None:
                    return portion
                if self._gathering.is_over:
                    break
                if not await self._hear(silent_until) and time.monotonic() >= silent_until:
                    return []
        raise StopAsyncIteration

    def _ask(self, every: float) -> None:
        self._courier.check()
        for exchange in self._gathering.ask(time.monotonic(), every):
            self._questions.ask(exchange)

    async def _hear(self, until: float) -> bool:
        """Take in what is answered by then, at the latest when there is something to ask."""
        began = time.monotonic()
        answers = await self._questions.hear(min(until, self._gathering.due) - began)
        now = time.monotonic()
        self._gathering.waited(now - began)
        for exchange, answer in answers:
            self._gathering.take(exchange, answer, now)
        return bool(answers)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One task waits; an error ends the reading, a wait that is cancelled does not."""
        if self._is_awaited:
            text = "another task waits for the next of this reading, too"
            raise error("bad_request", text, "let each task have a reading of its own")
        self._is_awaited = True
        try:
            yield
        except Exception:
            self._end()
            raise
        finally:
            self._is_awaited = False

    def _end(self) -> None:
        self._is_over = True
        self._found = iter(())
        self._questions.drop()
        self._questions.wake()


class Portions:
    """Made by `Reading.portions`; may be left and begun anew at any time."""

    def __init__(self, reading: Reading, every: float) -> None:
        self._reading = reading
        self._every = every
        self._silent_until: float | None = None
        """Not yet known between two waits: what the application does meanwhile is no silence."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Message]:
        """The next portion."""
        if self._silent_until is None:
            self._silent_until = time.monotonic() + self._every
        portion = await self._reading._portion(self._every, self._silent_until)
        self._silent_until = None
        return portion
