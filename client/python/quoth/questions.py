"""Questions to a broker, any number of them on their way over one connection, for whoever reads many topics.

Answers overtake each other. What gets none in time, or was on its way when the connection was lost, is sent
again, see `Exchange`; refusals are answers, too, and what to do about them is the asker's affair.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import zmq

from quoth.channel import Context, Link
from quoth.exchange import Exchange
from quothwire.codec import Answer
from quothwire.errors import error
from quothwire.message import Request

LOOK_S = 1.0
"""How often it is looked for what has been silent for too long."""


class Questions:
    """One link and what was asked over it, which may change nothing. Belongs to one thread.

    patience: seconds that an answer may take beyond what the broker was told to wait; of what is asked from
    now on.
    """

    def __init__(self, context: Context, url: str, patience: float) -> None:
        self.patience = patience
        self._link = Link(context, url)
        self._correlation = secrets.randbits(32)
        self._asked: dict[int, Exchange] = {}
        self._look_at = 0.0

    @property
    def connected(self) -> bool:
        """Is the broker there, as far as is known?"""
        return bool(self._link.connected)

    def ask(self, request: Request, topic: str = "", *, wait: float = 0.0) -> int:
        """Send a request; returns the correlation id that its answer will have."""
        self._correlation += 1
        now = time.monotonic()
        exchange = Exchange(request, topic, deadline=now + wait + self.patience, wait=wait)
        exchange.begin(self._correlation, now)
        self._asked[self._correlation] = exchange
        with _alive():
            self._send(exchange)
        return self._correlation

    def hear(self, seconds: float) -> list[Answer]:
        """The answers that have come, none after so many seconds of silence.

        Raises `Disconnected` for an answer that took too long, or ``closed``.
        """
        with _alive():
            until = time.monotonic() + seconds
            while True:
                now = time.monotonic()
                found = self._link.wait(min(until - now, LOOK_S))
                answers = list(self._received())
                now = time.monotonic()
                if found or now >= self._look_at:
                    self._look_at = now + LOOK_S
                    self._look(now, found=found)
                if answers or now >= until:
                    return answers

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _received(self) -> Iterator[Answer]:
        while (answer := self._link.receive()) is not None:
            if self._asked.pop(answer.correlation, None) is not None:
                yield answer

    def _look(self, now: float, *, found: bool) -> None:
        """Send again what may have been lost."""
        for exchange in self._asked.values():
            if now >= exchange.deadline:
                raise self._link.nobody(exchange.what)
            if exchange.is_to_be_sent(now, found=found, connected=self.connected):
                self._send(exchange)

    def _send(self, exchange: Exchange) -> None:
        with suppress(zmq.Again):
            self._link.send(exchange.frames)
            exchange.unheard += 1


@contextmanager
def _alive() -> Iterator[None]:
    try:
        yield
    except (zmq.ContextTerminated, zmq.ZMQError) as problem:
        if isinstance(problem, zmq.ContextTerminated) or problem.errno == zmq.ENOTSOCK:
            raise error("closed", "the client or the broker in this process was closed") from None
        raise
