"""The request multiplexer for an event loop: many requests on their way over one I/O thread.

Answers gather here until somebody takes them, so whoever is cancelled while he waits loses none.
"""

from __future__ import annotations

from asyncio import Future, timeout
from contextlib import suppress

from quoth.aio.io_thread import IOThread, Ticket
from quoth.core.deadline import as_seconds
from quoth.core.request_state import RequestState
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Answer


class LoopMultiplexer:
    """What one reading has asked, which may change nothing. Of the loop."""

    def __init__(self, courier: IOThread) -> None:
        self._courier = courier
        self._asked: set[Ticket] = set()
        self._settled: list[Ticket] = []
        self._waiter: Future[None] | None = None

    @property
    def connected(self) -> bool:
        """Is the broker there, as far as is known?"""
        return self._courier.connected

    def ask(self, exchange: RequestState) -> None:
        """Send a request. Raises what `IOThread.ask` raises."""
        self._asked.add(self._courier.ask(exchange, self._settle))

    async def hear(self, seconds: float) -> list[tuple[RequestState, Answer]]:
        """What has been answered, refusals included; nothing after so many seconds of silence.

        Raises `Disconnected` for an answer that took too long, or ``closed``.
        """
        if not self._settled:
            self._waiter = self._courier.relay.loop.create_future()
            with suppress(TimeoutError):
                async with timeout(as_seconds(seconds)):
                    await self._waiter
        settled, self._settled = self._settled, []
        return [(ticket.exchange, _answer(ticket)) for ticket in settled]

    def wake(self) -> None:
        """Let whoever waits hear nothing."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def drop(self) -> None:
        """Nobody wants to know any more. Any thread may say so."""
        asked, self._asked = self._asked, set()
        for ticket in asked:
            self._courier.drop(ticket)

    def _settle(self, ticket: Ticket) -> None:
        self._asked.discard(ticket)
        self._settled.append(ticket)
        self.wake()


def _answer(ticket: Ticket) -> Answer:
    outcome = ticket.outcome
    assert outcome is not None
    if isinstance(outcome, QuothError):
        raise outcome
    return outcome
