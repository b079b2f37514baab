"""The outbox: what the other threads have for the front end, in order, with one wake-up a burst."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from quothd.requests.events import Event
from quothd.threads.wakeup import Wakeup


class Outbox:
    """Any thread posts, the front end takes. What it holds is bounded by the requests that are in work."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._attended = False
        self._wakeup = Wakeup()
        self.fd = self._wakeup.fd

    def post(self, *events: Event) -> None:
        """Hand events over."""
        self._events.extend(events)
        if not self._attended:
            self._attended = True
            self._wakeup.ring()

    def wake(self) -> None:
        """Make the front end look up, without an event."""
        self._wakeup.ring()

    def attend(self, *, rung: bool) -> None:
        """From now on nobody needs to ring. rung: `fd` is readable."""
        self._attended = True
        if rung:
            self._wakeup.hush()

    def leave(self) -> bool:
        """From now on whoever posts rings; False if there is something that has been posted already."""
        self._attended = False
        return not self._events

    def take(self, until: float) -> Iterator[Event]:
        """What has been posted, at least one event, and no more once the monotonic clock says `until`."""
        while self._events:
            yield self._events.popleft()
            if time.monotonic() >= until:
                break

    def close(self) -> None:
        """Close its descriptors; nobody posts any more."""
        self._wakeup.close()
