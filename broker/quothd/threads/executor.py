"""Decides which thread handles the items of an open topic, by passing the topic's token.

One thread has the token of a topic at any time, and that thread alone uses the `Topic`. The token travels
with a message: to the topic's thread with a list of items, back to the front end with `Released`.

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

A thread that was the front end until a disk stalled it posts its events and `Released`, and ends.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from quothd.config.config import Config
from quothd.requests.events import (
    Brought,
    Close,
    CommitStepDone,
    DeadLetterDone,
    Event,
    Item,
    Opening,
    Query,
    Released,
)
from quothd.requests.pending_request import PendingRequest
from quothd.threads.outbox import Outbox
from quothd.threads.stall_guard import StallGuard, TakenOver
from quothd.threads.thread_pool import ThreadPool, run_query, run_step, run_sync
from quothd.threads.topic_thread import TopicThread
from quothd.topics.failures import shortage
from quothd.topics.metadata import TopicMetadata
from quothd.topics.opening import open_topic
from quothd.topics.topic import Topic
from quothlog.appender import SyncRequest
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import FileSystem
from quothlog.transactions.commit import Commit
from quothwire.protocol.messages import Operation

SLOW_S = 10.0
"""The items of a topic go to its own thread for so long after it has stalled the front end."""
QUICK_ITEMS_MAX = 128
QUICK_BYTES_MAX = 2**19
"""So many publishes and fetches together take less than 2 ms, unless the disk stalls. A fetch is expected to
return what the last one has returned, and one is quick whatever it returns."""

SETTLED_QUICK_BYTES = 2**12
"""A settlement of a hundred rows takes 1 ms if each of them cuts a range of its own."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The threads and ports that all topics of a broker share. thread_type: makes the thread of a topic."""

    directory: Path
    filesystem: FileSystem
    clock: Clock
    outbox: Outbox[Executor]
    fsync_thread: ThreadPool
    reader_pool: ThreadPool
    guard: StallGuard
    thread_type: type[TopicThread] = TopicThread


class Holder(Enum):
    """The thread that has the token of a topic."""

    OPENING = "opening"
    FRONT = "front"
    HANDLING = "handling"
    THREAD = "thread"
    ENDED = "ended"


CAN_RUN = (Holder.FRONT, Holder.THREAD)
"""Where `Executor.run` has something to do with items."""


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

        self.thread = shared.thread_type(metadata, open_, self._post, shared.clock)
        self.thread.start()

    # -- for the front end ----------------------------------------------------------------------------------

    def run(self, now: float) -> Sequence[Event]:
        """Handle the given items if they are quick, or give all to the topic's thread; returns the events.

        Raises `TakenOver` if a disk has stalled this thread, which is the front end no more.
        """
        if not self.given or self.holder not in CAN_RUN:
            return ()
        if self.holder is Holder.FRONT and now >= self._slow_until:
            count = count_quick(self.thread.topic, self.given)
            if count and self._shared.guard.can_watch(now):
                return self._handle(count, now)
        self._send()
        return ()

    def send(self, item: Item) -> None:
        """Let the topic's thread handle an item, behind all that was given."""
        self.given.append(item)
        if self.holder in CAN_RUN:
            self._send()

    def tick(self, now: float) -> Sequence[Event]:
        """Execute the maintenance that is due, or give it to the topic's thread; returns the events."""
        if self.holder is not Holder.FRONT:
            return ()
        topic = self.thread.topic
        if topic.is_sync_alone_due(now):
            return topic.tick(now)
        self._send()
        return ()

    def next_due(self) -> float:
        """The monotonic time at which to call `tick`; infinity while another thread has the token."""
        return self.thread.topic.next_due if self.holder is Holder.FRONT else math.inf

    def release(self, released: Released, now: float) -> None:
        """Take the token back, unless its thread has items to handle still."""
        if self.holder is Holder.HANDLING:
            self._slow_until = now + SLOW_S
            self.holder = Holder.FRONT
        elif released.handled == self._sent and self.holder is not Holder.ENDED:
            self.holder = Holder.FRONT

    def finish(self) -> None:
        """Let the topic's thread close the log behind all that was given: the front end ends."""
        self.given.append(Close())
        if self.holder is not Holder.HANDLING:
            self._send()

    def take_late(self, events: Sequence[Event]) -> None:
        """Give the topic's thread late results, and the token that it needs to close the log.

        For any thread, once the front end has ended.
        """
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
        self.thread.drop()
        return items

    # -- for the topic, in the thread that has the token ------------------------------------------------

    def sync(self, request: SyncRequest) -> None:
        """See `Services.sync`."""
        self._shared.fsync_thread.submit(lambda: run_sync(request), self._bring)

    def read(self, request: PendingRequest, query: Query) -> None:
        """See `Services.read`."""
        self._shared.reader_pool.submit(lambda: run_query(request, query), self._bring)

    def step(self, commit: Commit, take: Callable[[], None]) -> None:
        """See `Services.step`."""
        name = self.thread.name
        thread = threading.Thread(
            target=lambda: self._bring(run_step(commit, take)), name=f"quoth-commit-{name}", daemon=True
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

    def _handle(self, count: int, now: float) -> Sequence[Event]:
        """Handle the first items that were given, under the watch of the stall guard.

        The items are taken before the watch begins: from then on the executor may be another thread's.
        """
        items, self.given = self.given[:count], self.given[count:]
        self.holder = Holder.HANDLING
        topic = self.thread.topic
        watch = self._shared.guard.begin(self.thread.name, now)
        events: list[Event] = []
        try:
            events = topic.handle(items, now)
        finally:
            if self._shared.guard.is_taken_over(watch):
                self._post([*events, Released(self._sent)])
                raise TakenOver
        self.holder = Holder.FRONT
        if topic.has_more:
            self._send()
        return events


def count_quick(topic: Topic, items: Sequence[Item]) -> int:
    """Count the items, from the first on, that a topic handles in a moment if the disk does not stall.

    What other threads have done is quick, but for a step of a commit.
    """
    if not topic.is_ready:
        return 0
    count = written = found = settled = 0
    for item in items[:QUICK_ITEMS_MAX]:
        if isinstance(item, PendingRequest):
            if item.operation is Operation.PUBLISH:
                written += item.size
                if written > QUICK_BYTES_MAX or not topic.fits(written):
                    break
            elif item.operation is Operation.FETCH:
                found += topic.reads.found_bytes
                if count and found > QUICK_BYTES_MAX:
                    break
            elif item.operation is Operation.GROUP_FETCH and topic.groups.is_quick:
                found += topic.groups.found_bytes
                if count and found > QUICK_BYTES_MAX:
                    break
            elif item.operation is Operation.GROUP_SETTLE and topic.groups.is_quick:
                settled += item.size
                if settled > SETTLED_QUICK_BYTES:
                    break
            else:
                break
        elif isinstance(item, Close | CommitStepDone | DeadLetterDone):
            break
        count += 1
    return count
