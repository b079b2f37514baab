"""One open topic without threads and sockets: a test has its token, its clock and its services."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kit.clocks import SECOND, ManualClock
from quothd.config.config import Config
from quothd.connections.connection import unwatched
from quothd.requests.events import Answered, Closed, Deleted, Event, Failed, Item, Query, Waiting
from quothd.requests.pending_request import PendingRequest, open_request
from quothd.threads.thread_pool import run_query, run_step, run_sync
from quothd.topics.metadata import TopicMetadata
from quothd.topics.opening import open_topic
from quothd.topics.topic import Topic
from quothlog.appender import SyncRequest
from quothlog.datadir.topic_file import TopicFile
from quothlog.storage.filesystem import FileSystem
from quothlog.transactions.commit import Commit
from quothwire.errors import QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.messages import Reply, Request
from quothwire.settings import TopicSettings

NAME = "t"
LOG_ID = 77


def pending(request: Request, payload: bytes | None = None) -> PendingRequest:
    """A request as the front end gives it to a topic."""
    frames: list[Any] = [b"client", b"", *binary_codec.encode_request(request, 1, NAME, payload)]
    return open_request(frames, unwatched())


def new_topic() -> TopicMetadata:
    return TopicMetadata(None, TopicFile(NAME, LOG_ID, TopicSettings()))


class Services:
    """Keeps the work that a topic gives away until a test executes it."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], Item]] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._work

    def sync(self, request: SyncRequest) -> None:
        self._work.append(lambda: run_sync(request))

    def read(self, request: PendingRequest, query: Query) -> None:
        self._work.append(lambda: run_query(request, query))

    def step(self, commit: Commit, take: Callable[[], None]) -> None:
        self._work.append(lambda: run_step(commit, take))

    def execute(self) -> Item:
        """Execute what was given first; returns the item that comes back."""
        return self._work.popleft()()


class OpenTopic:
    """A topic in a folder below a directory, and what it has answered.

    answers: of each request its code, "" for a reply, "waits" for a fetch that goes back to the front end.
    frames: of each answer.
    """

    def __init__(
        self,
        directory: Path,
        disk: FileSystem,
        metadata: TopicMetadata | None = None,
        clock: ManualClock | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or ManualClock(tick=1)
        self.metadata = metadata or new_topic()
        self.config = Config(dir=directory, **settings)
        self.services = Services()
        self.answers: dict[PendingRequest, list[str]] = {}
        self.frames: dict[PendingRequest, Frames] = {}
        self.events: list[Event] = []
        (directory / "topics").mkdir(parents=True, exist_ok=self.metadata.path is not None)
        ports = disk, self.clock, self.services, lambda _done, _size: None
        self.topic: Topic = open_topic(directory, self.metadata, self.config, *ports)
        self.handle()

    def handle(self, *items: Item) -> None:
        """Let the topic handle items, all that it leaves, too."""
        for item in items:
            if isinstance(item, PendingRequest):
                self.answers[item] = []
        self._take(self.topic.handle(items, self.clock.monotonic()))
        while self.topic.has_more:
            self._take(self.topic.handle((), self.clock.monotonic()))

    def deliver(self) -> None:
        """Execute all services, also those that follow."""
        while not self.services.is_idle:
            self.handle(self.services.execute())

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with the maintenance that is due by then."""
        self.clock.step(int(seconds * SECOND))
        now = self.clock.monotonic()
        if self.topic.next_due <= now:
            self._take(self.topic.tick(now))

    def codes(self, requests: Iterable[PendingRequest]) -> list[str]:
        found = [self.answers[request] for request in requests]
        assert all(len(answers) == 1 for answers in found), found
        return [answers[0] for answers in found]

    @property
    def end(self) -> Event | None:
        ends = [event for event in self.events if isinstance(event, Closed | Deleted | Failed)]
        assert ends in ([], self.events[-1:]), "it is the last one"
        return ends[0] if ends else None

    def _take(self, events: list[Event]) -> None:
        self.events += events
        for event in events:
            match event:
                case Answered() | Deleted():
                    self.answers[event.request].append(code_of_answer(event.frames))
                    self.frames[event.request] = event.frames
                case Waiting():
                    self.answers[event.request].append("waits")
                case Failed():
                    for request in event.requests:
                        self.answers[request].append(event.problem.code)
                case _:
                    pass


def code_of_answer(frames: Frames) -> str:
    """Return the code of an answer, "" for a reply."""
    if not frames[0]:  # of a dead letter
        return bytes(frames[4]).decode() if len(frames) > 4 else ""
    reply = binary_codec.decode_answer([*frames[2:]]).reply
    return reply.code if isinstance(reply, QuothError) else ""


def reply_in(frames: Frames) -> tuple[Reply, bytes]:
    """Return the reply in an answer, with its payload. Raises the error in it."""
    answer = binary_codec.decode_answer([*frames[2:]])
    if isinstance(answer.reply, QuothError):
        raise answer.reply
    return answer.reply, bytes(answer.payload)
