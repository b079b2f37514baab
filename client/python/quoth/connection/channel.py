"""Requests over one connection: any number in flight, answered in any order.

A request that gets no answer in time, was refused for now, or was in flight when the connection was lost is
sent again: `RequestState` decides that.
"""

from __future__ import annotations

import math
import os
import time
from typing import TypeAlias, TypeVar

import zmq

from quoth.connection.connection import Context, Link, as_quoth_error
from quoth.connection.endpoint import Endpoint
from quoth.core.idempotence import Sequences
from quoth.core.options import Timing
from quoth.core.request_state import ClientCall, RequestState, resume
from quothwire.closing import Closeable
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Answer

T = TypeVar("T")
CHECKED_S = 0.01
"""For so long after a wait for its link, a channel sends without another look at the events of the link."""
Settled: TypeAlias = list[tuple[RequestState, Answer | QuothError]]
"""Requests with their outcomes: an answer, which may be an error, or the error that none came in time."""


class LinkRequests:
    """The requests in flight over one link. Belongs to one thread. due: no request is due before."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.asked: dict[int, RequestState] = {}
        self.due = math.inf

    def send(self, request: RequestState) -> None:
        """Send a request that has begun, or another copy of it."""
        self.asked[request.correlation] = request
        try:
            self.link.send(request.frames)
            request.unanswered += 1
        except zmq.Again:
            self.link.redial()  # it is sent once there is a broker
        if request.due < self.due:
            self.due = request.due

    def take(self, now: float, *, found: bool) -> Settled:
        """Take the answers that have come by now, and send again what may be lost.

        found: a lost connection was made again just now, or the broker has refused the key.
        """
        asked, receive = self.asked, self.link.receive
        settled: Settled = []
        while (answer := receive()) is not None:
            request = asked.get(answer.correlation)
            if request is None:  # it was given up, or is a second copy's
                continue
            if request.is_settled_by(answer, now):
                del asked[answer.correlation]
                settled.append((request, answer))
                if not asked:
                    break  # another receive would take 5 us to find nothing
            else:
                self.due = min(self.due, request.due)
        if found or now >= self.due or self.link.is_over:
            settled += self._check(now, found=found)
        return settled

    def _check(self, now: float, *, found: bool) -> Settled:
        """Send requests again that may be lost; remove and return those that are over."""
        if self.link.refused is not None:
            return self._end_all()
        over: Settled = []
        for request in list(self.asked.values()):
            if request.is_over(now) or self.link.is_over:
                del self.asked[request.correlation]
                over.append((request, self.link.no_answer(request.what)))
            elif request.is_to_be_sent(now, found=found, connected=bool(self.link.connected)):
                self.send(request)
        self.due = min((request.due for request in self.asked.values()), default=math.inf)
        return over

    def _end_all(self) -> Settled:
        """Remove and return all requests: the broker has refused the connection, which answers them."""
        over, self.asked, self.due = self.asked, {}, math.inf
        return [
            (
                request,
                Answer(
                    correlation, self.link.auth_failed(request.what, is_sent=bool(request.unanswered)), b""
                ),
            )
            for correlation, request in over.items()
        ]


class Channel(LinkRequests, Closeable):
    """A link for the requests of one thread at a time, with the producer ids that its publishes carry.

    once: see `Link`.
    """

    def __init__(
        self, context: Context, endpoint: Endpoint, timing: Timing | None = None, *, once: bool = False
    ) -> None:
        super().__init__(Link(context, endpoint, once=once))
        self.sequences = Sequences()
        self._timing = timing or Timing()
        self._correlation = int.from_bytes(os.urandom(4))

    @property
    def connected(self) -> bool:
        """True if the broker is there, as far as is known."""
        return bool(self.link.connected)

    def run(self, call: ClientCall[T]) -> T:
        """Execute a call, and return its result."""
        try:
            request = next(call)
            while True:
                try:
                    outcome = self.settle(request)
                except QuothError as problem:
                    outcome = problem
                request = resume(call, outcome)
        except StopIteration as end:
            result: T = end.value
            return result

    def ask(self, request: RequestState) -> None:
        """Send a request. Raises ``closed``, or ``bad_request`` for what cannot be encoded."""
        self._correlation += 1
        try:
            now = time.monotonic()
            if not self.asked and now - self.link.polled_at > CHECKED_S:
                self.link.wait(0.0)  # earlier events are no reason to send twice
                now = time.monotonic()
            request.begin(self._correlation, now, self._timing.resend)
            self.send(request)
        except zmq.ZMQError as problem:
            raise as_quoth_error(problem) from None

    def hear(self, seconds: float) -> list[tuple[RequestState, Answer]]:
        """Wait for answers, which may be errors; returns none after so many seconds without any.

        Raises `Disconnected` for a request that got no answer by its deadline, or ``closed``. The next call
        returns an answer that came later, or raises the error again.
        """
        answers: list[tuple[RequestState, Answer]] = []
        problem: QuothError | None = None
        for request, outcome in self._settled(time.monotonic() + seconds):
            if isinstance(outcome, QuothError):
                problem = outcome
                self.asked[request.correlation] = request
                self.due = min(self.due, request.due)
            else:
                answers.append((request, outcome))
        if problem is not None and not answers:
            raise problem
        return answers

    def settle(self, request: RequestState) -> Answer | QuothError:
        """Wait for the answer to a request, which is sent now unless it is in flight. Others are given up.

        Returns `Disconnected` if none has come by its deadline: then the outcome is not known.
        """
        if self.asked.get(request.correlation) is request:
            self.due = min(self.due, request.due)  # it may have got a deadline meanwhile
        else:
            self.asked.clear()
            self.ask(request)
        while True:
            for settled, outcome in self._settled(math.inf):
                if settled is request:
                    return outcome

    def _settled(self, until: float) -> Settled:
        """Wait until requests are settled, or for a time."""
        try:
            while True:
                now = time.monotonic()
                found = self.link.wait((self.due if self.due < until else until) - now, now)
                now = time.monotonic()  # before the answers are taken: then none comes too late
                settled = self.take(now, found=found)
                if settled or now >= until:
                    return settled
        except zmq.ZMQError as problem:
            raise as_quoth_error(problem) from None

    def close(self) -> None:
        """Close the connection."""
        self.link.close()


def answer_of(outcome: Answer | QuothError) -> Answer:
    """Return the answer to a request. Raises the error that none came."""
    if isinstance(outcome, QuothError):
        raise outcome
    return outcome
