"""The values that threads hand to each other: items for a topic, and events for the front end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from quothd.config.config import Config
from quothd.connections.connection import SMALL_REPLY_BYTES, SMALL_REPLY_FRAMES
from quothd.metrics.group_metrics import GroupMetrics
from quothd.metrics.measures import Measures
from quothd.requests.pending_request import PendingRequest
from quothlog import LogInfo
from quothlog.appender import SyncRequest
from quothlog.file_format import LogPosition
from quothlog.transactions.commit import Commit
from quothwire.batch import Bytes
from quothwire.errors import QuothError
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.messages import Reply
from quothwire.protocol.value import Value

# -- items: what a topic handles ------------------------------------------------------------------------


class Query(Protocol):
    """A read that any thread may execute."""

    def read(self) -> Any:
        """Execute it; returns the result."""


class ReadDone(NamedTuple):
    """A reader thread has executed the query of a request; `problem` is what that raised."""

    request: PendingRequest
    query: Query
    found: Any
    problem: Exception | None


class SyncDone(NamedTuple):
    """The fsync thread has executed a request; `problem` is what that raised. seconds: the time it took."""

    request: SyncRequest
    problem: OSError | None
    seconds: float = 0.0


class CommitStepDone(NamedTuple):
    """A step of a commit has ended; `problem` is the exception that it raised."""

    commit: Commit
    problem: Exception | None


class DeadLetterDone(NamedTuple):
    """A dead letter of a group was published; `problem` is the reason for which it was not."""

    group: str
    number: int
    problem: QuothError | None


class Close(NamedTuple):
    """Close the log."""


Item = PendingRequest | ReadDone | SyncDone | CommitStepDone | DeadLetterDone | Close | Config


# -- events: what the front end learns ------------------------------------------------------------------


class Answered(NamedTuple):
    """A request has its answer: the frames to send. held: bytes of a large one, for its connection."""

    request: PendingRequest
    frames: Frames
    held: int = 0


class Waiting(NamedTuple):
    """A fetch found nothing and may wait at the front end."""

    request: PendingRequest


class GroupReady(NamedTuple):
    """A group may have something to hand out from a monotonic time on.

    after: or as soon as the topic has records above this pointer.
    """

    group: str
    at: float
    after: int = POINTER_MAX


class DeadLetter(NamedTuple):
    """A group's records to publish in another topic. The answer comes back as `DeadLetterDone`."""

    group: str
    number: int
    topic: str
    batch: bytes


class Opening(Value):
    """The log is being opened: bytes scanned, of those that have to be."""

    done: int
    size: int


class Opened(NamedTuple):
    """The log is open."""


class Progress(NamedTuple):
    """Readers may see records up to here. synced: the end of what survives a loss of power.

    is_new: they see more than before; else only the synced end has moved.
    """

    newest: int
    end_ordinal: int
    synced: LogPosition
    is_new: bool


class Informed(Value):
    """The state of the log, now and then, and before `Opened` and `Closed`.

    retention_due: the time of the next retention in microseconds, infinite for none. measures: what the topic
    has done since the last such event. groups: the state of its consumer groups.
    """

    info: LogInfo
    retention_due: float
    measures: Measures
    groups: tuple[GroupMetrics, ...]


class DiskLow(NamedTuple):
    """A publish was refused, since too little of the disk is free."""


class Idle(NamedTuple):
    """The topic had no request for `worker_timeout`."""


class Closed(NamedTuple):
    """The log is closed, and the thread ends."""


class Deleted(NamedTuple):
    """The topic is deleted, and the thread ends. The frames answer the request once the topic is gone."""

    request: PendingRequest
    frames: Frames


class Failed(Value):
    """The thread ends because of a problem, which is also the answer of the requests that have none."""

    problem: QuothError
    requests: Sequence[PendingRequest]


class Released(NamedTuple):
    """A thread gives the token back. handled: lists of items that it has handled since it started."""

    handled: int


class Brought(NamedTuple):
    """A reader, the fsync thread or a step of a commit has an item for the topic."""

    item: Item


Event = (
    Answered | Waiting | Opening | Opened | Progress | Informed | DiskLow | Idle | Closed | Deleted | Failed
    | Released | Brought | GroupReady | DeadLetter
)  # fmt: skip


class EventList:
    """The events of a topic until the front end takes them, in order, and its requests without an answer.

    Each of those gets exactly one answer, or goes back to wait at the front end. answer_bytes: those of the
    last frames of all answers since `take`. measures: what the topic has done since `take_measures`.
    """

    def __init__(self) -> None:
        self.unanswered: dict[PendingRequest, None] = {}
        self.measures = Measures()
        self.answer_bytes = 0
        self._events: list[Event] = []

    def answer(self, request: PendingRequest, frames: Frames) -> None:
        """Answer a request."""
        del self.unanswered[request]
        size, held = len(frames[-1]), 0
        self.answer_bytes += size
        if size > SMALL_REPLY_BYTES or len(frames) > SMALL_REPLY_FRAMES:
            held = request.connection.hold_large(frames)
        self._events.append(Answered(request, frames, held))

    def reply(self, request: PendingRequest, reply: Reply, payload: Bytes | None = None) -> None:
        """Answer a request with a reply."""
        self.answer(request, request.responder.reply(reply, payload))

    def refuse(self, request: PendingRequest, problem: QuothError) -> None:
        """Answer a request with an error."""
        self.measures.refused[problem.code] += 1
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

    def take_measures(self) -> Measures:
        """Return what the topic has done since the last call."""
        measures, self.measures = self.measures, Measures()
        return measures
