"""Collects the events of a topic until the front end takes them."""

from __future__ import annotations

from quothd.requests.events import Answered, Event, Waiting
from quothd.requests.pending_request import PendingRequest
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Frames


class EventList:
    """Events in order, and the requests without an answer.

    Every accepted request gets exactly one answer, or goes back to wait at the front end. answer_bytes: those
    of the last frames of all answers since `take`.
    """

    def __init__(self) -> None:
        self.unanswered: dict[PendingRequest, None] = {}
        self.answer_bytes = 0
        self._events: list[Event] = []

    def accept(self, request: PendingRequest) -> None:
        """Note that a request needs an answer."""
        self.unanswered[request] = None

    def answer(self, request: PendingRequest, frames: Frames) -> None:
        """Answer a request."""
        del self.unanswered[request]
        self.answer_bytes += len(frames[-1])
        self._events.append(Answered(request, frames))

    def refuse(self, request: PendingRequest, problem: QuothError) -> None:
        """Answer a request with an error."""
        self.answer(request, request.responder.refuse(problem))

    def wait(self, request: PendingRequest) -> None:
        """Give a fetch back, to wait at the front end."""
        del self.unanswered[request]
        self._events.append(Waiting(request))

    def add(self, event: Event) -> None:
        """Add any other event."""
        self._events.append(event)

    def take(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        self.answer_bytes = 0
        return events
