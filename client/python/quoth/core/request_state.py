"""The state of one request until its outcome is known. Uses no socket and no clock.

    sent --answered--> settled: by a result, or by an error
     |  ^
     |  +-- lost, or no answer for long: the same frames are sent again
     v  |
    refused for now: sent again after a pause. An earlier copy may still be answered with a result

The driver owns the socket and the clock. It sends `frames` when `begin` and `is_to_be_sent` ask for it,
checks again at `due` at the latest, and gives up when the request `is_over`. Sending twice is safe: reads
change nothing, the broker recognises a publish by its producer id and sequence, and a deletion names the
log's id.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from typing import Protocol, TypeAlias, TypeVar

from quoth.core.options import RESEND_S
from quothwire.errors import Disconnected, QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Request

BACKOFF_S, BACKOFF_MAX_S = 0.005, 0.5
RETRIED = frozenset(("busy", "recovering", "stopping"))
"""Codes of temporary errors. The broker did not look at this copy, so nothing of it was stored; they
do not say what became of an earlier copy."""


def passes_soon(problem: QuothError | None) -> bool:
    """Return True for an error that ends with the broker's outage or overload: try again within a second.

    A broker that comes back may refuse requests at first, with one of `RETRIED`.
    """
    if isinstance(problem, Disconnected):
        return problem.retryable
    return problem is not None and problem.code in RETRIED


class RequestState:
    """A request that is on its way. Owned by one thread, from `begin` until it is settled.

    deadline: by the monotonic clock. wait: seconds that the broker itself may take to answer. absence:
    seconds for which no broker may be there. retried: error codes after which it is sent again; every other
    answer settles it. unanswered: copies without an answer, each of which may have taken effect. due: when to
    check again.
    """

    __slots__ = (
        "_absence", "_absent_until", "_backoff", "_is_refused", "_payload", "_request", "_resend",
        "_resend_at", "_retried", "_topic", "correlation", "deadline", "due", "frames", "unanswered", "wait",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        topic: str = "",
        payload: bytes | None = None,
        *,
        deadline: float = math.inf,
        wait: float = 0.0,
        absence: float = math.inf,
        retried: frozenset[str] = RETRIED,
    ) -> None:
        self.deadline = deadline
        self.wait = wait
        self.unanswered = 0
        self.correlation = -1
        self.frames: list[bytes] = []
        self.due = self._resend_at = math.inf
        self._is_refused = False
        self._absence = absence
        self._absent_until = math.inf
        self._resend = RESEND_S
        self._retried = retried
        self._backoff = BACKOFF_S
        self._request = request
        self._topic = topic
        self._payload = payload

    @property
    def what(self) -> str:
        """Its name in an error: the operation and the topic."""
        return f"{self._request.operation.name.lower()} {self._topic}".strip()

    def begin(self, correlation: int, now: float, resend: float = RESEND_S) -> None:
        """Encode its frames, to be sent now. Raises ``bad_request`` for what cannot be encoded.

        resend: seconds without an answer after which it is sent again.
        """
        self.frames = binary_codec.encode_request(self._request, correlation, self._topic, self._payload)
        self.correlation = correlation
        self.unanswered = 0
        self._resend = resend
        self._backoff = BACKOFF_S
        self._absent_until = math.inf
        self._restart(now)

    def expect(self, deadline: float) -> None:
        """Set the deadline of a request that was sent before its answer was needed."""
        self.deadline = deadline
        self.due = min(self.due, deadline)

    def is_settled_by(self, answer: Answer, now: float) -> bool:
        """Return True if an answer is the outcome; else the request is sent again if there is time.

        An error for one copy does not tell the outcome of an earlier one without an answer.
        """
        self.unanswered -= 1
        problem = answer.reply
        if not isinstance(problem, QuothError) or problem.code not in self._retried:
            return True
        until = now + random.uniform(0.5, 1.0) * self._backoff
        if until > self.deadline and not self.unanswered:
            return True
        self._backoff = min(2 * self._backoff, BACKOFF_MAX_S)
        self._is_refused = True
        self.due = min(until, self.deadline)
        return False

    def is_over(self, now: float) -> bool:
        """Return True if it is time to give up."""
        return now >= min(self.deadline, self._absent_until)

    def is_to_be_sent(self, now: float, *, found: bool, connected: bool) -> bool:
        """Return True if another copy is to be sent. found: a lost connection was made again just now."""
        if connected:
            self._absent_until = math.inf
        elif self._absent_until == math.inf:
            self._absent_until = now + self._absence
        if self._is_refused:
            lost = now >= self.due
        elif now >= self._resend_at:
            # Without a broker copies would only queue up: the next connection is the time to send.
            lost = found or connected
            self._resend_at = now + self._resend
            self.due = min(self.deadline, self._resend_at)
        else:
            lost = found
        if lost:
            self._restart(now)
        return lost

    def _restart(self, now: float) -> None:
        """Wait for an answer from now on: a copy is sent."""
        self._is_refused = False
        self._resend_at = now + self.wait + self._resend
        self.due = min(self.deadline, self._resend_at)


class Requests(Protocol):
    """A request multiplexer of either client."""

    @property
    def connected(self) -> bool:
        """True if the broker is there, as far as is known."""

    def ask(self, request: RequestState) -> None:
        """Send a request."""

    def close(self) -> None:
        """Send nothing more."""


T = TypeVar("T")

ClientCall: TypeAlias = Generator[RequestState, Answer, T]
"""The requests of one call, one after the other. The driver sends in each answer, or throws in its error."""


def resume(call: ClientCall[object], outcome: Answer | QuothError) -> RequestState:
    """Give a call the outcome of its request, and return its next one.

    Raises StopIteration with the result of the call, or its error.
    """
    if isinstance(outcome, Answer):
        if not isinstance(outcome.reply, QuothError):
            return call.send(outcome)
        outcome = outcome.reply
    return call.throw(outcome)
