"""One request on its way through the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quothd.requests.responder import Responder
from quothwire.errors import error
from quothwire.protocol.messages import Operation


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that has no answer yet.

    responder: makes the answer. topic: its name, "" for a request about the broker. size: bytes that the
    broker holds for it. message: the request decoded, None before `decode`. after: the cursor of a fetch,
    which moves on when a segment had nothing. deadline: the monotonic time up to which a fetch waits, 0 for
    one that does not.
    """

    responder: Responder
    operation: Operation
    topic: str
    size: int
    message: Any = None
    after: int = -1
    deadline: float = 0.0

    def decode(self) -> Any:
        """Return the message, decoded at the first call. Raises ``bad_request`` and what the codec does."""
        if self.message is None:
            self.message = self.responder.request()
        return self.message

    def begin_fetch(self, now: float) -> None:
        """Set cursor and deadline of a fetch, at the first call.

        Raises ``bad_request`` for one that ends before it begins.
        """
        if self.after < 0:
            message = self.decode()
            if message.until:
                check_range(message.after, message.until)
            self.after = message.after
            if message.wait_ms and not self.is_past_end:
                self.deadline = now + message.wait_ms / 1_000

    @property
    def is_past_end(self) -> bool:
        """True for a fetch that begins at its end."""
        return bool(0 < self.message.until <= self.message.after)


def check_range(after: int, until: int) -> None:
    """Raise ``bad_request`` for a range that ends before it begins."""
    if until < after:
        raise error("bad_request", f"a range that begins after {after} and ends at {until}", "swap the two")
