"""The request multiplexer: any number of requests in flight over one connection.

Answers come in any order. A request that gets none in time, was refused for now, or was in flight when the
connection was lost is sent again, see `RequestState`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import zmq

from quoth.connection.connection import Context, Link, closed
from quoth.core.request_state import RequestState
from quoth.core.timing import Timing
from quothwire.closing import Closeable
from quothwire.protocol.binary_codec import Answer


class RequestMultiplexer(Closeable):
    """A link and its requests, which have to be safe to repeat. Belongs to one thread."""

    def __init__(self, context: Context, url: str, timing: Timing) -> None:
        self._link = Link(context, url)
        self._timing = timing
        self._correlation = int.from_bytes(os.urandom(4))
        self._asked: dict[int, RequestState] = {}
        self._due = math.inf
        """No request is due before."""

    @property
    def connected(self) -> bool:
        """True if the broker is there, as far as is known."""
        return bool(self._link.connected)

    def ask(self, request: RequestState) -> None:
        """Send a request. Raises ``closed``, or ``bad_request`` for what cannot be encoded."""
        self._correlation += 1
        request.begin(self._correlation, time.monotonic(), self._timing.resend)
        self._asked[self._correlation] = request
        with _as_closed():
            self._send(request)

    def hear(self, seconds: float) -> list[tuple[RequestState, Answer]]:
        """Wait for answers, which may be refusals; returns none after so many seconds without any.

        Raises `Disconnected` for a request that got no answer by its deadline, or ``closed``.
        """
        with _as_closed():
            until = time.monotonic() + seconds
            while True:
                found = self._link.wait(min(until, self._due) - time.monotonic())
                # Answers that have come by then are taken before a request is given up.
                now = time.monotonic()
                answers = list(self._received(now))
                if found or now >= self._due:
                    self._check_requests(now, found=found)
                if answers or now >= until:
                    return answers

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _received(self, now: float) -> Iterator[tuple[RequestState, Answer]]:
        while (answer := self._link.receive()) is not None:
            request = self._asked.get(answer.correlation)
            if request is None:
                continue
            if request.is_settled_by(answer, now):
                del self._asked[answer.correlation]
                yield request, answer
            else:
                self._due = min(self._due, request.due)

    def _check_requests(self, now: float, *, found: bool) -> None:
        """Send the requests again that may be lost, or may be sent again after a refusal."""
        for request in self._asked.values():
            if request.is_over(now):
                raise self._link.no_answer(request.what)
            if request.is_to_be_sent(now, found=found, connected=self.connected):
                self._send(request)
        self._due = min((request.due for request in self._asked.values()), default=math.inf)

    def _send(self, request: RequestState) -> None:
        with suppress(zmq.Again):
            self._link.send(request.frames)
            request.unanswered += 1
        self._due = min(self._due, request.due)


@contextmanager
def _as_closed() -> Iterator[None]:
    """Raise ``closed`` if the context or the socket was closed by another thread."""
    try:
        yield
    except (zmq.ContextTerminated, zmq.ZMQError) as problem:
        if isinstance(problem, zmq.ContextTerminated) or problem.errno == zmq.ENOTSOCK:
            raise closed() from None
        raise
