"""The queue from all other threads to the front end, with one wakeup a burst."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from quothd.requests.events import Event
from quothd.threads.wakeup import Wakeup

Poster = TypeVar("Poster")


class Outbox(Wakeup, Generic[Poster]):
    """Any thread posts events of a topic, the front end takes them. The requests in work bound how many."""

    def __init__(self) -> None:
        super().__init__()
        self._posted: deque[tuple[Poster, Sequence[Event]]] = deque()
        self._deliver: Callable[[Poster, Sequence[Event]], None] | None = None

    def post(self, poster: Poster, events: Sequence[Event]) -> None:
        """Hand over events of a topic."""
        self._posted.append((poster, events))
        if self._deliver is not None:
            self.abandon(self._deliver)
        elif not self._attended:
            self.notify()

    def leave(self) -> bool:
        """The front end will wait: posting wakes it. False if there are events already."""
        self._attended = False
        return not self._posted

    def take(self, until: float, monotonic: Callable[[], float]) -> Iterator[tuple[Poster, Sequence[Event]]]:
        """Yield what was posted, at least once, and no more once the monotonic clock says `until`."""
        while self._posted:
            yield self._posted.popleft()
            if monotonic() >= until:
                break

    def abandon(self, deliver: Callable[[Poster, Sequence[Event]], None]) -> None:
        """Let the threads that post deliver the events themselves: the front end takes none any more."""
        self._deliver = deliver
        with suppress(IndexError):
            while True:
                deliver(*self._posted.popleft())
