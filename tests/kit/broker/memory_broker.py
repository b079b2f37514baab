"""The topics of a broker in memory, without threads and sockets: a test says which thread goes on."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from kit.broker.open_topic import code_of_answer
from kit.clocks import SECOND, ManualClock
from kit.disk.doubles import FaultyDisk
from quothd.config.config import Config
from quothd.connections.connection import Connection
from quothd.datadir import catalog
from quothd.frontend.dispatcher import Dispatcher
from quothd.requests.events import Event, Failed, Item, Released
from quothd.requests.pending_request import PendingRequest
from quothd.threads.executor import Shared
from quothd.threads.outbox import Outbox
from quothd.threads.topic_thread import TopicThread
from quothd.topics.topic import Topic
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Frames


class SteppedThread(TopicThread):
    """A topic's thread that does nothing until the test calls `step`.

    lists: what it was given and has not handled yet.
    """

    def __init__(
        self,
        metadata: Any,
        open_topic: Callable[[], Topic],
        post: Callable[[Sequence[Event]], None],
        clock: Any,
    ) -> None:
        super().__init__(metadata, open_topic, post, clock)
        self.lists: deque[list[Item]] = deque()
        self._runs = False
        self._is_open = False
        self._handled = 0

    def start(self) -> None:
        self._runs = True

    def give(self, items: list[Item]) -> None:
        self.lists.append(items)

    def stop(self) -> None:
        self._runs = False

    def leftover(self) -> list[Item]:
        items = [item for items in self.lists for item in items]
        self.lists.clear()
        return items

    def join(self, seconds: float) -> None:
        while self.step():
            pass

    @property
    def is_alive(self) -> bool:
        return self._runs

    def step(self) -> bool:
        """Open the log, or handle what was given first; False if there is nothing to do."""
        if not self._runs or (self._is_open and not self.lists):
            return False
        if not self._is_open:
            try:
                self.topic = self._open()
            except QuothError as problem:
                self._end([Failed(problem, [])])
                return True
            self._is_open = True
            events = self.topic.handle((), self._clock.monotonic())
        else:
            events = self.topic.handle(self.lists.popleft(), self._clock.monotonic())
            self._handled += 1
        while self.topic.has_more:
            events += self.topic.handle((), self._clock.monotonic())
        if not self.topic.ended and self.topic.next_due <= self._clock.monotonic():
            events += self.topic.tick(self._clock.monotonic())
        if self.topic.ended:
            self._end(events)
        else:
            self._post([*events, Released(self._handled)])
        return True

    def _end(self, events: Sequence[Event]) -> None:
        self._runs = False
        self._post(events)


class HeldWork:
    """The fsync thread and the reader threads: their work waits until the test lets it be done."""

    def __init__(self) -> None:
        self.runs = 0
        self._submitted: deque[tuple[Callable[[], Item], Callable[[Item], None]]] = deque()

    def submit(self, work: Callable[[], Item], back: Callable[[Item], None]) -> None:
        self._submitted.append((work, back))

    def step(self) -> bool:
        """Execute the oldest submitted work; False if there is none."""
        if not self._submitted:
            return False
        self.runs += 1
        work, back = self._submitted.popleft()
        back(work())
        return True


class Guard:
    """The stall guard. is_there: it watches. has_taken_over: a disk has stalled the front end."""

    def __init__(self) -> None:
        self.is_there = True
        self.has_taken_over = False

    def can_watch(self, _now: float) -> bool:
        return self.is_there

    def begin(self, _topic: str, _now: float) -> int:
        return 0

    def is_taken_over(self, _watch: int) -> bool:
        return self.has_taken_over


class MemoryBroker:
    """The dispatcher of a broker with all its topics, on a clock and a disk of the test.

    answers: of each request its codes, "" for a reply. frames: of its last answer. newest: the announced
    pointers.
    """

    def __init__(self, directory: Path, disk: FaultyDisk | None = None, **settings: Any) -> None:
        self.clock = ManualClock(tick=1)
        self.disk = disk or FaultyDisk(syncs=False)
        self.config = Config(dir=directory, **settings)
        self.work = HeldWork()
        self.guard = Guard()
        self.outbox: Outbox[Any] = Outbox()
        weakref.finalize(self, self.outbox.close)
        doubles: Any = self.work, self.work, self.guard, SteppedThread
        self.shared = Shared(directory, self.disk, self.clock, self.outbox, *doubles)
        self.answers: dict[PendingRequest, list[str]] = {}
        self.frames: dict[PendingRequest, Frames] = {}
        self.newest: dict[str, int] = {}
        self._by_route: dict[bytes, PendingRequest] = {}
        ways = self._send, self.newest.__setitem__
        folders = catalog.scan(directory, self.disk).folders
        self.dispatcher = Dispatcher(self.config, folders, self.shared, *ways)

    @property
    def threads(self) -> list[SteppedThread]:
        return [cast(SteppedThread, executor.thread) for executor in self.dispatcher.scheduler.executors]

    def ask(self, request: PendingRequest) -> PendingRequest:
        """Let the dispatcher take a request. The route in its frames says whose answer it is."""
        route = b"%d" % len(self.answers)
        cast(Any, request.responder)._route = [route, b""]
        self._by_route[route] = request
        self.answers[request] = []
        try:
            self.dispatcher.submit(request, self.clock.monotonic())
        except QuothError as problem:
            self.answers[request].append(problem.code)
        return request

    def code(self, request: PendingRequest) -> str:
        assert len(self.answers[request]) == 1, self.answers[request]
        return self.answers[request][0]

    def front_end(self) -> bool:
        """Let the front end do what it can; False if there was nothing."""
        moved = False
        for executor, events in [*self.outbox.take(math.inf, self.clock.monotonic)]:
            self.dispatcher.take(executor, events, self.clock.monotonic())
            moved = True
        return self.dispatcher.run(math.inf) or moved

    def settle(self) -> None:
        """Let all threads do what they can until nothing is left."""
        while self.front_end() or any(thread.step() for thread in self.threads) or self.work.step():
            pass

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and do what is due by then."""
        self.clock.step(int(seconds * SECOND))
        self.dispatcher.tick(self.clock.monotonic())

    def _send(self, frames: Frames, held: int = 0, connection: Connection | None = None) -> None:
        if connection is not None:
            connection.hold(-held)
        request = self._by_route[bytes(frames[0])]
        self.answers[request].append(code_of_answer(frames))
        self.frames[request] = frames
