"""The inbox: what there is to do for one topic, in order.

Whatever comes in the front end looks at first, and does what is quick; what is not it hands over, all at once
at the end of a turn: then the worker wakes once for it, and finds the interpreter free.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from quothd.requests.pending_request import PendingRequest


class Inbox:
    """Items for one topic. Any thread puts; the worker waits; whoever holds the worker's lock takes.

    announce: tells the front end that something was brought. given: jobs of the front end that are not in it
    yet; they come behind all that is. direct: what is brought is for the worker, who waits for it.
    """

    def __init__(self, announce: Callable[[], None]) -> None:
        self.given: list[PendingRequest] = []
        self.direct = False
        self._announce = announce
        self._items: deque[object] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False

    def put(self, *items: object) -> None:
        """Put something in and wake the worker."""
        self._items.extend(items)
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    def bring(self, item: object) -> None:
        """Put in what somebody was asked for; it is the front end's to look at, unless the worker waits."""
        self._items.append(item)
        if self.direct:
            self.put()
        else:
            self._announce()

    def hand_over(self) -> None:
        """Put in what was given; it and all that is there is for the worker."""
        given, self.given = self.given, []
        if given or self._items:
            self.put(*given)

    def wait(self, until: float) -> None:
        """Wait until there may be something in it, or until the monotonic clock says so."""
        if not self._items:
            with suppress(Empty):
                self._bell.get(timeout=max(0.0, until - time.monotonic()))
                self._rung = False  # whoever has seen it raised has put something in that is found now

    def take(self, most: int) -> list[object]:
        """Take what is there, at most so many items."""
        taken: list[object] = []
        with suppress(IndexError):
            while len(taken) < most:
                taken.append(self._items.popleft())
        return taken

    def take_given(self, most: int) -> list[object]:
        """Take what is there and then what was given, at most so many items. For the front end."""
        taken = self.take(most)
        more = most - len(taken)
        taken += self.given[:more]
        del self.given[:more]
        return taken

    def content(self) -> list[object]:
        """All that is there and all that was given, which stays there. For the front end."""
        while True:
            with suppress(RuntimeError):  # somebody has put something in meanwhile
                return [*self._items, *self.given]

    def leftover(self) -> list[PendingRequest]:
        """The jobs in it, once the worker has ended. For the front end, who alone gives them."""
        return [item for item in self.take_given(len(self.content())) if isinstance(item, PendingRequest)]
