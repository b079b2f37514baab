"""The outbox: what the other threads have for the front end, in order, with one wake-up a burst."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from quothd.events import Event
from quothd.wakeup import Wakeup


class Outbox:
    """Any thread posts, the front end takes. What it holds is bounded by the requests that are in work."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._rung = False
        self._wakeup = Wakeup()
        self.fd = self._wakeup.fd

    def post(self, *events: Event) -> None:
        """Hand events over."""
        self._events.extend(events)
        if not self._rung:
            self._rung = True
            self._wakeup.ring()

    def wake(self) -> None:
        """Make the front end look up, without an event."""
        self._wakeup.ring()

    def take(self, until: float) -> Iterator[Event]:
        """What has been posted, at least one event, and no more once the monotonic clock says `until`.

        It is hushed before the flag is lowered: a post between the two does not ring and is taken here, a
        later one rings and is heard. It is hushed whatever the flag says: the ring of an event that was
        taken already may come late.
        """
        self._wakeup.hush()
        self._rung = False
        while self._events:
            yield self._events.popleft()
            if time.monotonic() >= until:
                break
        if self._events:
            self._rung = True
            self._wakeup.ring()

    def close(self) -> None:
        """Close its descriptors; nobody posts any more."""
        self._wakeup.close()
