"""A job: one request on its way through the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quothd.caller import Caller
from quothwire.message import Operation


@dataclass(slots=True, eq=False)
class Job:
    """One request of one caller.

    size: bytes that it makes the broker hold. deadline: by the monotonic clock, for a fetch that waits.
    after: where a fetch stands by now; it moves on when a segment had nothing.
    """

    caller: Caller
    operation: Operation
    topic: str
    size: int
    request: Any = None
    after: int = -1
    deadline: float = 0.0

    def decode(self) -> Any:
        """The request, decoded at the first need."""
        if self.request is None:
            self.request = self.caller.request()
        return self.request

    def begin_fetch(self, now: float) -> None:
        """Set where a fetch stands and until when it waits, the first time it is looked at."""
        if self.after < 0:
            request = self.decode()
            self.after = request.after
            self.deadline = now + request.wait_ms / 1_000 if request.wait_ms else 0.0
