"""The thread of one active topic: opens its log, and handles the items that the front end gives it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from quothd.requests.events import Event, Failed, Item, Released
from quothd.topics.failures import shortage
from quothd.topics.metadata import TopicMetadata
from quothd.topics.topic import Topic
from quothlog.storage.clock import Clock
from quothwire.errors import QuothError

BURST_MAX = 256
"""Items handled together: 256 publishes of 1 MiB are the most that one write brings to the disk."""


class TopicThread:
    """A thread that has a topic's token while it opens the log, and whenever it was given items.

    topic: the open topic, for the thread that has the token. open_topic: opens it, or raises a `QuothError`.
    post: hands events to the front end. The thread ends when the topic has ended.
    """

    def __init__(
        self,
        metadata: TopicMetadata,
        open_topic: Callable[[], Topic],
        post: Callable[[Sequence[Event]], None],
        clock: Clock,
    ) -> None:
        self.topic: Topic
        self.metadata = metadata
        self.name = metadata.topic.name
        self._open = open_topic
        self._post = post
        self._clock = clock
        self._lists: SimpleQueue[list[Item] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"quoth-topic-{self.name}", daemon=True)

    # -- for the front end ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. If it cannot be started, posts `Failed`."""
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as problem:
            self._post([Failed(shortage(problem, self.name), [])])

    def give(self, items: list[Item]) -> None:
        """Let the thread handle items, and the maintenance that is due behind them. The token goes along."""
        self._lists.put(items)

    def stop(self) -> None:
        """Let the thread end, since another one has ended the topic."""
        self._lists.put(None)

    def drop(self) -> None:
        """Drop the log of a topic that has ended, and what refers back to the owner of this.

        Else the memory of both would stay until a collection of cyclic garbage.
        """
        vars(self).pop("topic", None)
        self._open, self._post = _no_topic, _no_events

    def leftover(self) -> list[Item]:
        """Return the items that the thread has not taken before it ended."""
        items: list[Item] = []
        with suppress(Empty):
            while True:
                items += self._lists.get_nowait() or ()
        return items

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, seconds))

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    # -- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.topic = topic = self._open()
        except QuothError as problem:
            self._post([Failed(problem, [])])
            return
        events = topic.handle((), self._clock.monotonic())
        handled = 0
        while not topic.ended:
            items: list[Item] = []
            if not topic.has_more:
                if self._lists.empty():
                    events.append(Released(handled))
                self._post(events)
                first = self._lists.get()
                if first is None:
                    return
                items, handled = first, handled + 1
                while len(items) < BURST_MAX and not self._lists.empty():
                    items += self._lists.get() or ()
                    handled += 1
            else:
                self._post(events)
            now = self._clock.monotonic()
            events = topic.handle(items, now)
            if topic.next_due <= now and not topic.ended:
                events += topic.tick(now)
        self._post(events)


def _no_topic() -> Topic:
    raise AssertionError("the topic has ended")


def _no_events(events: Sequence[Event]) -> None:
    assert not events, "the topic has ended"
