"""The outbox: what the other threads have for the front end, in order, with one wake-up a burst."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from quothd.events import Event
from quothd.wakeup import Wakeup

TAKE_MAX = 1_000
"""Events that the front end takes before it looks at its sockets again."""


class Outbox:
    """Any thread posts, the front end takes. What it holds is bounded by the requests that are in work."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._rung = False
        self._woken = False
        self._wakeup = Wakeup()
        self.fd = self._wakeup.fd

    def post(self, event: Event) -> None:
        """Hand an event over."""
        self._events.append(event)
        if not self._rung:
            self._rung = True
            self._wakeup.ring()

    def wake(self) -> None:
        """Make the front end look up, without an event."""
        self._woken = True
        self._wakeup.ring()

    def take(self) -> Iterator[Event]:
        """What has been posted.

        It is hushed before the flag is lowered: a post between the two does not ring and is taken here, a
        later one rings and is heard. The other way round a ring could be hushed with its flag still up.
        """
        if not self._rung and not self._woken:
            return
        self._wakeup.hush()
        self._woken = False
        self._rung = False
        for _ in range(TAKE_MAX):
            try:
                yield self._events.popleft()
            except IndexError:
                return
        self._rung = True
        self._wakeup.ring()

    def close(self) -> None:
        """Close its descriptors; nobody posts any more."""
        self._wakeup.close()
