"""Decides which thread handles the items of an open topic, by passing the topic's token.

One thread has the token of a topic at any time, and that thread alone uses the `Topic`. The token travels
with a message: to the topic's thread with a list of items, back to the front end with `Released`. There is no
lock.

| holder   | who has the token               | items that come    | maintenance is due | `Released`      |
| -------- | ------------------------------- | ------------------ | ------------------ | --------------- |
| OPENING  | the topic's thread, which opens | are kept           |                    | FRONT           |
| FRONT    | the front end                   | quick: HANDLING    | an fsync begins    |                 |
|          |                                 | others: THREAD     | other: THREAD      |                 |
| HANDLING | a thread that is the front end, | are kept           |                    | FRONT, slow for |
|          | or was, until a disk stalled it |                    |                    | `SLOW_S`        |
| THREAD   | the topic's thread              | go there           |                    | FRONT, if all   |
|          |                                 |                    |                    | is handled      |
| ENDED    | none: the topic is closed       | are dropped        |                    |                 |

Items are quick if `Topic.quick` says so: two wake-ups cost more than a publish or a fetch. Whether it was
quick is known afterwards only, since a disk may stall for seconds. Then the stall guard makes another thread
the front end; the stalled one posts its events and `Released` to the outbox, as the topic's thread does, and
ends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from quothd.config.config import Config
from quothd.requests.events import Brought, Close, Event, Item, Opening, Query, Released
from quothd.requests.pending_request import PendingRequest
from quothd.threads.fsync_thread import FsyncThread
from quothd.threads.outbox import Outbox
from quothd.threads.reader_pool import ReaderPool
from quothd.threads.stall_guard import StallGuard, TakenOver
from quothd.threads.topic_thread import TopicThread
from quothd.topics.failures import shortage
from quothd.topics.metadata import TopicMetadata
from quothd.topics.opening import open_topic
from quothd.topics.topic import Topic
from quothd.topics.transactions import CommitStep
from quothlog.appending.appender import SyncRequest
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import FileSystem

SLOW_S = 10.0
"""The items of a topic go to its own thread for so long after it has stalled the front end."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all topics of a broker share."""

    directory: Path
    filesystem: FileSystem
    clock: Clock
    outbox: Outbox
    fsync_thread: FsyncThread
    reader_pool: ReaderPool
    guard: StallGuard


class Holder(Enum):
    """The thread that has the token of a topic."""

    OPENING = "opening"
    FRONT = "front"
    HANDLING = "handling"
    THREAD = "thread"
    ENDED = "ended"


class Executor:
    """One active topic, seen from the front end, whose thread owns this.

    given: items that no thread has yet.
    """

    def __init__(self, metadata: TopicMetadata, config: Config, shared: Shared) -> None:
        self.holder = Holder.OPENING
        self.given: list[Item] = []
        self._shared = shared
        self._sent = 0
        self._slow_until = 0.0

        def open_() -> Topic:
            ports = shared.filesystem, shared.clock
            return open_topic(shared.directory, metadata, config, *ports, self, self._report)

        self.thread = TopicThread(metadata, open_, self._post, shared.clock)
        self.thread.start()

    # -- for the front end ----------------------------------------------------------------------------------

    def run(self, now: float) -> Sequence[Event]:
        """Handle what was given and is quick, or give all of it to the topic's thread; returns the events.

        Raises `TakenOver` if a disk has stalled this thread, which is the front end no more.
        """
        if self.holder is Holder.FRONT and self.given:
            may_handle = now >= self._slow_until and self._shared.guard.is_there(now)
            count = self.thread.topic.quick(self.given) if may_handle else 0
            if count:
                items = self.given[:count]
                del self.given[:count]
                return self._handle(items, now)
            self._send()
        elif self.holder is Holder.THREAD and self.given:
            self._send()
        return ()

    @property
    def can_run(self) -> bool:
        """Whether `run` has something to do."""
        return bool(self.given) and self.holder in (Holder.FRONT, Holder.THREAD)

    def send(self, item: Item) -> None:
        """Let the topic's thread handle an item, behind all that was given."""
        self.given.append(item)
        if self.holder in (Holder.FRONT, Holder.THREAD):
            self._send()

    def tick(self, now: float) -> Sequence[Event]:
        """Do the maintenance that is due, or let the topic's thread do it; returns the events."""
        if self.holder is not Holder.FRONT:
            return ()
        topic = self.thread.topic
        if topic.is_sync_alone_due(now):
            return topic.tick(now)
        self._send()
        return ()

    def next_due(self) -> float | None:
        """The monotonic time at which to call `tick`; None while another thread has the token."""
        return self.thread.topic.next_due if self.holder is Holder.FRONT else None

    def release(self, released: Released, now: float) -> None:
        """Take the token back, unless its thread has items to handle still."""
        if self.holder is Holder.HANDLING:
            self._slow_until = now + SLOW_S
            self.holder = Holder.FRONT
        elif released.handled == self._sent:
            self.holder = Holder.FRONT

    def finish(self) -> None:
        """Let the topic's thread close the log behind all that was given: the front end ends."""
        self.given.append(Close())
        if self.holder is not Holder.HANDLING:
            self._send()

    def take_late(self, events: Sequence[Event]) -> None:
        """Give the topic's thread what it needs to close the log. For any thread, once the front end has
        ended."""
        for event in events:
            if isinstance(event, Brought):
                self.thread.give([event.item])
            elif isinstance(event, Released) and self.holder is Holder.HANDLING:
                self._send()

    def end(self) -> list[Item]:
        """Take note that the topic has ended; returns the items that no thread has handled."""
        self.holder = Holder.ENDED
        items, self.given = [*self.thread.leftover(), *self.given], []
        self.thread.stop()
        return items

    # -- for the topic, in the thread that has the token ------------------------------------------------

    def sync(self, request: SyncRequest) -> None:
        """See `Services.sync`."""
        self._shared.fsync_thread.submit(request, self._bring)

    def read(self, request: PendingRequest, query: Query) -> None:
        """See `Services.read`."""
        self._shared.reader_pool.submit(request, query, self._bring)

    def step(self, step: CommitStep) -> None:
        """See `Services.step`."""
        name = self.thread.name
        thread = threading.Thread(
            target=lambda: self._bring(step.run()), name=f"quoth-commit-{name}", daemon=True
        )
        try:
            thread.start()
        except (RuntimeError, MemoryError) as problem:
            raise shortage(problem, name) from problem

    # -- inside ---------------------------------------------------------------------------------------------

    def _bring(self, item: Item) -> None:
        self._post([Brought(item)])

    def _report(self, done: int, size: int) -> None:
        self._post([Opening(done, size)])

    def _post(self, events: Sequence[Event]) -> None:
        self._shared.outbox.post(self, events)

    def _send(self) -> None:
        items, self.given = self.given, []
        self._sent += 1
        self.holder = Holder.THREAD
        self.thread.give(items)

    def _handle(self, items: list[Item], now: float) -> Sequence[Event]:
        self.holder = Holder.HANDLING
        guard = self._shared.guard
        watch = guard.begin(self.thread.name, now)
        events: list[Event] = []
        try:
            events = self.thread.topic.handle(items, now)
        finally:
            if guard.is_taken_over(watch):
                self._post([*events, Released(self._sent)])
                raise TakenOver
        self.holder = Holder.FRONT
        if self.thread.topic.has_more:
            self._send()
        return events
