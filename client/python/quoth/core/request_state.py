"""One request and what becomes of it, until its outcome is known. Touches no socket and no clock.

    asked --answered--> settled: an answer, or the error that it carries
     |  ^
     |  | lost, or silent for long: the same frames are sent again
     |  +--
     |  ^
     |  | sent again when its time has come
     v  |
    resting: refused for now. An earlier copy may still be answered, and better

Whoever drives it owns the socket and the clock: it sends `frames` when `begin` and `is_to_be_sent` say so,
looks again at `due` at the latest, and gives up when it `is_over`. Sending twice is safe: reading changes
nothing, a publish is recognised by its producer id and sequence, and a deletion names the log that it means.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from typing import TypeAlias, TypeVar

from quothwire.errors import Disconnected, QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.operations import Request

RESEND_S = 5.0
"""Silence after which a request is sent again although the connection looks healthy."""
BACKOFF_S, BACKOFF_MAX_S = 0.005, 0.5
RETRIED = frozenset(("busy", "recovering", "stopping"))
"""Refusals that pass by themselves. The broker did not look at the request, so nothing of this copy was
stored; what became of an earlier one they do not tell."""


def passes_soon(problem: QuothError | None) -> bool:
    """Return True for an error that ends with the broker's outage or overload: try again within a second.

    A broker that comes back may refuse requests at first, with one of `RETRIED`.
    """
    if isinstance(problem, Disconnected):
        return problem.retryable
    return problem is not None and problem.code in RETRIED


class RequestState:
    """A request on its way. Owned by one thread, from `begin` until it is settled.

    deadline: by the monotonic clock. wait: seconds that the broker itself may take to answer. absence:
    seconds for which no broker may be there. retried: the refusals that are no outcome; to whoever has none
    of them every refusal is an answer. unheard: copies that no answer came for; each of them may have taken
    effect. due: when to look again if nothing happens.
    """

    __slots__ = (
        "_absence", "_absent_until", "_backoff", "_payload", "_request", "_resend_at", "_resting", "_retried",
        "_topic",
        "correlation", "deadline", "due", "frames", "unheard", "wait",
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
        self.unheard = 0
        self.correlation = -1
        self.frames: list[bytes] = []
        self.due = self._resend_at = math.inf
        self._resting = False
        self._absence = absence
        self._absent_until = math.inf
        self._retried = retried
        self._backoff = BACKOFF_S
        self._request = request
        self._topic = topic
        self._payload = payload

    @property
    def what(self) -> str:
        """How it is called in an error: by the names that the protocol has."""
        return f"{self._request.operation.name.lower()} {self._topic}".strip()

    def begin(self, correlation: int, now: float) -> None:
        """Make its frames: it is to be sent now. Raises ``bad_request`` for what cannot be encoded."""
        self.frames = binary_codec.encode_request(self._request, correlation, self._topic, self._payload)
        self.correlation = correlation
        self.unheard = 0
        self._backoff = BACKOFF_S
        self._absent_until = math.inf
        self._listen(now)

    def expect(self, deadline: float) -> None:
        """Let it have been settled by then: for one that was asked before anybody waited for it."""
        self.deadline = deadline
        self.due = min(self.due, deadline)

    def is_settled_by(self, answer: Answer, now: float) -> bool:
        """Is that its outcome? Otherwise it rests and is sent again, if there is time for that.

        A refusal of one copy does not tell what became of an earlier one that nothing was heard of.
        """
        self.unheard -= 1
        problem = answer.reply
        if not isinstance(problem, QuothError) or problem.code not in self._retried:
            return True
        until = now + random.uniform(0.5, 1.0) * self._backoff
        if until > self.deadline and not self.unheard:
            return True
        self._backoff = min(2 * self._backoff, BACKOFF_MAX_S)
        self._resting = True
        self.due = min(until, self.deadline)
        return False

    def is_over(self, now: float) -> bool:
        """Is it time to give up?"""
        return now >= min(self.deadline, self._absent_until)

    def is_to_be_sent(self, now: float, *, found: bool, connected: bool) -> bool:
        """Is it time for another copy? found: a lost connection was found again just now."""
        if connected:
            self._absent_until = math.inf
        elif self._absent_until == math.inf:
            self._absent_until = now + self._absence
        if self._resting:
            lost = now >= self.due
        elif now >= self._resend_at:
            # While nobody is there copies would only queue up: being found again is the time to send.
            lost = found or connected
            self._resend_at = now + RESEND_S
            self.due = min(self.deadline, self._resend_at)
        else:
            lost = found
        if lost:
            self._listen(now)
        return lost

    def _listen(self, now: float) -> None:
        """A copy is sent now."""
        self._resting = False
        self._resend_at = now + self.wait + RESEND_S
        self.due = min(self.deadline, self._resend_at)


T = TypeVar("T")

ClientCall: TypeAlias = Generator[RequestState, Answer, T]
"""What a call asks, one exchange after the other. Whoever takes the steps sends in the answer of each, or
throws in the error that it carries."""
