"""The request multiplexer for an event loop: many requests in flight over one I/O thread.

Answers are collected until a task takes them, so a wait that is cancelled loses none.
"""

from __future__ import annotations

from asyncio import Future, timeout
from contextlib import suppress

from quoth.aio.io_thread import IOThread, Ticket
from quoth.connection.channel import answer_of
from quoth.core.deadline import as_seconds
from quoth.core.request_state import RequestState
from quothwire.protocol.binary_codec import Answer


class LoopMultiplexer:
    """The requests of one reading or one part, which have to be safe to repeat. Belongs to the loop."""

    def __init__(self, io_thread: IOThread) -> None:
        self._io_thread = io_thread
        self._asked: set[Ticket] = set()
        self._settled: list[Ticket] = []
        self._waiter: Future[None] | None = None

    @property
    def connected(self) -> bool:
        """True if the broker is there, as far as is known."""
        return self._io_thread.connected

    def ask(self, request: RequestState) -> None:
        """Send a request. Raises what `IOThread.ask` raises."""
        self._asked.add(self._io_thread.ask(request, self._settle))

    async def hear(self, seconds: float) -> list[tuple[RequestState, Answer]]:
        """Wait for answers, which may be refusals; returns none after so many seconds without any.

        Raises `Disconnected` for a request that got no answer by its deadline, or ``closed``.
        """
        if not self._settled:
            self._waiter = self._io_thread.bridge.loop.create_future()
            with suppress(TimeoutError):
                async with timeout(as_seconds(seconds)):
                    await self._waiter
        settled, self._settled = self._settled, []
        return [(ticket.request, answer_of(ticket.outcome)) for ticket in settled if ticket.outcome]

    def wake(self) -> None:
        """End the wait for answers."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Give all requests up. Any thread may call it."""
        asked, self._asked = self._asked, set()
        for ticket in asked:
            self._io_thread.drop(ticket)

    def _settle(self, ticket: Ticket) -> None:
        self._asked.discard(ticket)
        self._settled.append(ticket)
        self.wake()
