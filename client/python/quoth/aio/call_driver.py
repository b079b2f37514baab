"""Executes calls in an event loop."""

from __future__ import annotations

from typing import Generic, TypeVar

from quoth.aio.io_thread import IOThread, Ticket
from quoth.core.request_state import ClientCall, RequestState
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
                request = self._next_request(outcome)
                try:
                    self._ticket = self._ask(request)
                except QuothError as problem:
                    outcome = problem
        except StopIteration as end:
            self._result = end.value

    def _next_request(self, outcome: Answer | QuothError | None) -> RequestState:
        if outcome is None:
            return next(self._call)
        if isinstance(outcome, QuothError):
            return self._call.throw(outcome)
        if isinstance(outcome.reply, QuothError):
            return self._call.throw(outcome.reply)
        return self._call.send(outcome)

    def _ask(self, request: RequestState) -> Ticket:
        if self._prefetch is None or self._prefetch.request is not request:
            return self._io_thread.ask(request)
        self._io_thread.update_due(self._prefetch)
        return self._prefetch
