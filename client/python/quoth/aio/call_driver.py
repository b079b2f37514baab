"""Taking the steps of a call in an event loop."""

from __future__ import annotations

from typing import Generic, TypeVar

from quoth.aio.io_thread import IOThread, Ticket
from quoth.core.request_state import ClientCall, RequestState
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer

T = TypeVar("T")


class CallDriver(Generic[T]):
    """The steps of one call. The first one is taken at once; whoever waits for the end may be cancelled and
    wait again.

    ahead: what was asked for before its step is taken.
    """

    def __init__(self, courier: IOThread, steps: ClientCall[T], ahead: Ticket | None = None) -> None:
        self._courier = courier
        self._steps = steps
        self._ahead = ahead
        self._ticket: Ticket | None = None
        self._result: T
        self._go_on(None)

    async def end(self) -> T:
        """What the steps come to. Raises what they raise."""
        while self._ticket is not None:
            self._go_on(await self._courier.outcome(self._ticket))
        return self._result

    def drop(self) -> None:
        """Nobody wants to know any more: nothing more is asked. Who waits all the same gets ``closed``."""
        ticket, self._ticket = self._ticket, None
        self._steps.close()
        if ticket is not None:
            self._courier.drop(ticket)
            ticket.settle(error("closed", "nobody waits for it any more"))

    def _go_on(self, outcome: Answer | QuothError | None) -> None:
        """Take one more step, with the outcome of the one before."""
        self._ticket = None
        try:
            while self._ticket is None:
                exchange = self._step(outcome)
                try:
                    self._ticket = self._ask(exchange)
                except QuothError as problem:
                    outcome = problem
        except StopIteration as end:
            self._result = end.value

    def _step(self, outcome: Answer | QuothError | None) -> RequestState:
        if outcome is None:
            return next(self._steps)
        if isinstance(outcome, QuothError):
            return self._steps.throw(outcome)
        if isinstance(outcome.reply, QuothError):
            return self._steps.throw(outcome.reply)
        return self._steps.send(outcome)

    def _ask(self, exchange: RequestState) -> Ticket:
        if self._ahead is None or self._ahead.exchange is not exchange:
            return self._courier.ask(exchange)
        self._courier.hurry(self._ahead)
        return self._ahead
