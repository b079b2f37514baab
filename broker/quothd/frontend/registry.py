"""One topic as the front end knows it: small while it sleeps, there may be a hundred thousand of them."""

from __future__ import annotations

from quothd.frontend.lifecycle import State, Transition, follow
from quothd.requests.pending_request import PendingRequest
from quothd.threads.topic_thread import Worker
from quothd.topics.metadata import TopicMetadata
from quothlog import LogInfo


class RegistryEntry:
    """A topic's place, its state, what was last heard of it, and the jobs that are not answered yet.

    info: None until the log has been opened once. outstanding: jobs accepted and not answered or parked.
    pending: those that wait for a worker. in_work: how many the worker has. makes_way: it gets no more of
    them, so that it can rest. looked_through: how many bytes of all that its opening has to. deletion: the
    job that will delete it once the others are done.
    """

    __slots__ = (
        "deletion", "end_ordinal", "in_work", "info", "is_new", "looked_through", "makes_way", "newest",
        "opening_since",
        "outstanding", "pending", "place", "retention_at", "state", "used", "worker",
    )  # fmt: skip

    def __init__(self, place: TopicMetadata, *, is_new: bool) -> None:
        self.place = place
        self.is_new = is_new
        self.state = State.ASLEEP
        self.worker: Worker | None = None
        self.info: LogInfo | None = None
        self.newest = 0
        self.end_ordinal = 0
        self.outstanding = 0
        self.pending: list[PendingRequest] = []
        self.in_work = 0
        self.makes_way = False
        self.deletion: PendingRequest | None = None
        self.retention_at: int | None = None
        self.opening_since = 0.0
        self.looked_through = (0, 0)
        self.used = 0.0

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.place.topic.name

    def step(self, happening: Transition) -> None:
        """Change the state by the table."""
        self.state = follow(self.state, happening)

    def learn(self, info: LogInfo) -> None:
        """Take in how the log stands."""
        self.info = info
        self.newest = info.last
        self.end_ordinal = info.end_ordinal

    def recovery(self, now: float) -> str:
        """How far its opening is, for whoever has to wait for it."""
        done, size = self.looked_through
        text = f"topic {self.name!r} has been opening for {now - self.opening_since:.1f} s"
        return f"{text}, {done} of {size} bytes have been looked through" if size else text

    def states(self) -> str:
        """A letter a segment, see `TopicInfo`; without a worker all of them hibernate."""
        letters = self.info.states if self.info is not None else "h"
        return letters if self.worker is not None else "h" * len(letters)
