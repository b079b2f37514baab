"""A job: one request on its way through the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quothd.requests.responder import Responder
from quothwire.errors import error
from quothwire.protocol.messages import Operation


@dataclass(slots=True, eq=False)
class PendingRequest:
    """One request of one caller.

    size: bytes that it makes the broker hold. deadline: by the monotonic clock, for a fetch that waits.
    after: where a fetch stands by now; it moves on when a segment had nothing.
    """

    responder: Responder
    operation: Operation
    topic: str
    size: int
    request: Any = None
    after: int = -1
    deadline: float = 0.0

    def decode(self) -> Any:
        """The request, decoded at the first need."""
        if self.request is None:
            self.request = self.responder.request()
        return self.request

    def begin_fetch(self, now: float) -> None:
        """Set where a fetch stands and until when it waits, the first time it is looked at.

        Raises ``bad_request`` for one that ends before it begins.
        """
        if self.after < 0:
            request = self.decode()
            if request.until:
                check_range(request.after, request.until)
            self.after = request.after
            if request.wait_ms and not self.is_past_end:
                self.deadline = now + request.wait_ms / 1_000

    @property
    def is_past_end(self) -> bool:
        """Does a fetch begin at its end?"""
        return bool(0 < self.request.until <= self.request.after)


def check_range(after: int, until: int) -> None:
    """Raise ``bad_request`` for a range that ends before it begins."""
    if until < after:
        raise error("bad_request", f"a range that begins after {after} and ends at {until}", "swap the two")
