"""Requests in an event loop: calls that are executed one request after the other, and many requests at once.

Answers are collected until a task takes them, so a wait that is cancelled loses none.
"""

from __future__ import annotations

from asyncio import Future, timeout
from contextlib import suppress
from typing import Generic, TypeVar

from quoth.aio.io_thread import IOThread, Ticket
from quoth.connection.channel import answer_of
from quoth.core.options import as_seconds
from quoth.core.request_state import ClientCall, RequestState, resume
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer

T = TypeVar("T")


class CallDriver(Generic[T]):
    """The execution of one call, whose first request is sent at once.

    A task that waits for the result may be cancelled and wait again. prefetch: a request of the call that was
    sent before.
    """

    def __init__(self, io_thread: IOThread, call: ClientCall[T], prefetch: Ticket | None = None) -> None:
        self._io_thread = io_thread
        self._call = call
        self._prefetch = prefetch
        self._ticket: Ticket | None = None
        self._result: T
        self._go_on(None)

    @property
    def is_done(self) -> bool:
        """True if the call has ended, so that there is nothing to wait for."""
        return self._ticket is None

    async def result(self) -> T:
        """Wait for the call and return its result. Raises the error of the call."""
        while self._ticket is not None:
            self._go_on(await self._io_thread.outcome(self._ticket))
        return self._result

    def drop(self) -> None:
        """Give the call up. A task that still waits for it gets ``closed``."""
        ticket, self._ticket = self._ticket, None
        self._call.close()
        if ticket is not None:
            self._io_thread.drop(ticket)
            ticket.settle(error("closed", "the call was given up"))

    def _go_on(self, outcome: Answer | QuothError | None) -> None:
        """Send the next request of the call, with the outcome of the one before."""
        self._ticket = None
        try:
            while self._ticket is None:
                request = next(self._call) if outcome is None else resume(self._call, outcome)
                try:
                    self._ticket = self._ask(request)
                except QuothError as problem:
                    outcome = problem
        except StopIteration as end:
            self._result = end.value

    def _ask(self, request: RequestState) -> Ticket:
        if self._prefetch is None or self._prefetch.request is not request:
            return self._io_thread.ask(request)
        self._io_thread.update_due(self._prefetch)
        return self._prefetch


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
        """Wait for answers, which may be errors; returns none after so many seconds without any.

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
