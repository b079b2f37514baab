"""Questions to a broker, any number of them on their way over one connection, for whoever reads many topics.

Answers overtake each other. What gets none in time, was refused for now or was on its way when the connection
was lost is sent again, as the `RequestState` says.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import zmq

from quoth.connection.connection import Context, Link
from quoth.core.request_state import RequestState
from quothwire.errors import error
from quothwire.protocol.binary_codec import Answer


class RequestMultiplexer:
    """One link and what was asked over it, which may change nothing. Belongs to one thread."""

    def __init__(self, context: Context, url: str) -> None:
        self._link = Link(context, url)
        self._correlation = int.from_bytes(os.urandom(4))
        self._asked: dict[int, RequestState] = {}
        self._due = math.inf
        """No exchange is due before."""

    @property
    def connected(self) -> bool:
        """Is the broker there, as far as is known?"""
        return bool(self._link.connected)

    def ask(self, exchange: RequestState) -> None:
        """Send a request. Raises ``closed``, or ``bad_request`` for what cannot be encoded."""
        self._correlation += 1
        exchange.begin(self._correlation, time.monotonic())
        self._asked[self._correlation] = exchange
        with _alive():
            self._send(exchange)

    def hear(self, seconds: float) -> list[tuple[RequestState, Answer]]:
        """What has been answered, refusals included; nothing after so many seconds of silence.

        Raises `Disconnected` for an answer that took too long, or ``closed``.
        """
        with _alive():
            until = time.monotonic() + seconds
            while True:
                found = self._link.wait(min(until, self._due) - time.monotonic())
                now = time.monotonic()  # what has come by then is taken before anything is given up
                answers = list(self._received(now))
                if found or now >= self._due:
                    self._look(now, found=found)
                if answers or now >= until:
                    return answers

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _received(self, now: float) -> Iterator[tuple[RequestState, Answer]]:
        while (answer := self._link.receive()) is not None:
            exchange = self._asked.get(answer.correlation)
            if exchange is None:
                continue
            if exchange.is_settled_by(answer, now):
                del self._asked[answer.correlation]
                yield exchange, answer
            else:
                self._due = min(self._due, exchange.due)

    def _look(self, now: float, *, found: bool) -> None:
        """Send again what may have been lost, and what may be sent again by now."""
        for exchange in self._asked.values():
            if exchange.is_over(now):
                raise self._link.nobody(exchange.what)
            if exchange.is_to_be_sent(now, found=found, connected=self.connected):
                self._send(exchange)
        self._due = min((exchange.due for exchange in self._asked.values()), default=math.inf)

    def _send(self, exchange: RequestState) -> None:
        with suppress(zmq.Again):
            self._link.send(exchange.frames)
            exchange.unheard += 1
        self._due = min(self._due, exchange.due)


@contextmanager
def _alive() -> Iterator[None]:
    try:
        yield
    except (zmq.ContextTerminated, zmq.ZMQError) as problem:
        if isinstance(problem, zmq.ContextTerminated) or problem.errno == zmq.ENOTSOCK:
            raise error("closed", "the client or the broker in this process was closed") from None
        raise
