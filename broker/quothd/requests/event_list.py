"""The voice of a keeper: what it tells the front end, all of a burst at once.

Every job that it was given is answered exactly once; until then it is known here.
"""

from __future__ import annotations

from quothd.frontend.router import COPY_BELOW_BYTES
from quothd.requests.events import Answered, Event, Parked, Progress, Sender
from quothd.requests.pending_request import PendingRequest
from quothd.threads.outbox import Outbox
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Frames


class Voice:
    """Events and answers on their way to the front end. unanswered: the jobs that are owed one, in order."""

    def __init__(self, worker: Sender, outbox: Outbox) -> None:
        self.unanswered: dict[PendingRequest, None] = {}
        self._worker = worker
        self._outbox = outbox
        self._said: list[Event] = []
        self._progress = (0, 0)

    def owe(self, job: PendingRequest) -> None:
        """This job is to be answered."""
        self.unanswered[job] = None

    def answer(self, job: PendingRequest, frames: Frames) -> None:
        """Answer a job."""
        del self.unanswered[job]
        self.say(Answered(self._worker, job, frames))
        if len(frames[-1]) >= COPY_BELOW_BYTES:  # a burst of these would fill the memory
            self.speak()

    def refuse(self, job: PendingRequest, problem: QuothError) -> None:
        """Answer a job with what went wrong."""
        self.answer(job, job.responder.refuse(problem))

    def park(self, job: PendingRequest) -> None:
        """Give a job back, to wait at the front end."""
        del self.unanswered[job]
        self.say(Parked(self._worker, job))

    def progress(self, newest: int, end_ordinal: int) -> None:
        """Tell how far readers may see, if that is news."""
        if (newest, end_ordinal) != self._progress:
            self._progress = (newest, end_ordinal)
            self.say(Progress(self._worker, newest, end_ordinal))

    def say(self, event: Event) -> None:
        """Tell the front end something, at the end of the burst."""
        self._said.append(event)

    def speak(self) -> None:
        """Tell the front end what there is to tell, all at once: that wakes it once."""
        if self._said:
            self._outbox.post(*self._said)
            self._said = []
