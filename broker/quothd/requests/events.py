"""What workers, readers and the sync thread tell the front end."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from quothd.requests.pending_request import PendingRequest
from quothd.topics.metadata import TopicMetadata
from quothlog import LogInfo
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.value import Value


class Sender(Protocol):
    """The worker that says it: told apart by identity, found by its topic."""

    @property
    def topic(self) -> str:
        """The name of its topic."""


class Answered(NamedTuple):
    """A job is done; these frames go to its caller."""

    worker: Sender
    job: PendingRequest
    frames: Frames


class Due(Value):
    """Something was brought to its inbox that may be quick to do."""

    worker: Sender


class Parked(Value):
    """A fetch found nothing yet and is willing to wait."""

    worker: Sender
    job: PendingRequest


class Opening(Value):
    """The log is being opened: bytes that have been looked through, of those that have to be."""

    worker: Sender
    done: int
    size: int


class Opened(Value):
    """The log is open. place: where it lives now. retention_due: see `Log.retention_due`."""

    worker: Sender
    place: TopicMetadata
    info: LogInfo
    retention_due: int | None


class Progress(Value):
    """Readers may see records up to here."""

    worker: Sender
    newest: int
    end_ordinal: int


class Informed(Value):
    """How the log stands, told now and then."""

    worker: Sender
    info: LogInfo
    retention_due: int | None


class Changed(Value):
    """The topic has other settings now."""

    worker: Sender
    place: TopicMetadata


class DiskLow(Value):
    """A publish was refused, since too little of the disk is free."""

    worker: Sender


class Idle(Value):
    """Nothing was asked of the worker for a while."""

    worker: Sender


class Slept(Value):
    """The log is closed and the thread ends."""

    worker: Sender
    place: TopicMetadata
    info: LogInfo
    retention_due: int | None


class Deleted(Value):
    """The topic is deleted and the thread ends; the frames go to who asked for it, once the topic is gone."""

    worker: Sender
    job: PendingRequest
    frames: Frames


class Failed(Value):
    """The thread ends for a reason that it did not choose; jobs that it had not answered get the problem."""

    worker: Sender
    place: TopicMetadata
    problem: QuothError
    jobs: list[PendingRequest]


Event = (
    Answered
    | Due
    | Parked
    | Opening
    | Opened
    | Progress
    | Informed
    | Changed
    | DiskLow
    | Idle
    | Slept
    | Deleted
    | Failed
)
