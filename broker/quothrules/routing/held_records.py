"""The records that a worker has in hand, and their leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from quoth.groups.group import GroupMessage, extend_all
from quothwire.errors import Conflict, QuothError

LEASE_S = 5.0
"""After a crash another process waits for so long before it goes on, to keep the order. A lease that is lost
while its worker is kept from extending it does no harm: the records come back to the same process."""
EXTEND_S = LEASE_S / 3
STOPPED = "the rules process was stopped"


class WorkerStopped(Exception):
    """The worker is to end."""


class HeldRecords:
    """Records under leases, in the order of their pointers. Belongs to one thread.

    left: those that are not finished. stopping: set once the worker is to end.
    """

    def __init__(self, messages: Iterable[GroupMessage], stopping: threading.Event) -> None:
        self.left = sorted(messages, key=lambda one: one.pointer)
        self._stopping = stopping
        self._extend_at = time.monotonic() + EXTEND_S

    def keep(self) -> None:
        """Extend the leases if it is time. Raises `WorkerStopped`, and ``lease_lost`` if there is none."""
        if self._stopping.is_set():
            raise WorkerStopped
        if time.monotonic() < self._extend_at:
            return
        self._extend_at = time.monotonic() + EXTEND_S
        try:
            extend_all(self.left, LEASE_S)
        except Conflict:
            raise
        except QuothError:  # without a broker there is no lease, and the records come again
            return

    def wait(self, seconds: float) -> None:
        """Wait, and keep the leases meanwhile. Raises as `keep` does."""
        until = time.monotonic() + seconds
        while True:
            self.keep()
            now = time.monotonic()
            if now >= until:
                return
            self._stopping.wait(min(until, self._extend_at) - now)

    def remove(self, messages: Iterable[GroupMessage]) -> None:
        """Remove records that are finished."""
        finished = {one.pointer for one in messages}
        self.left = [one for one in self.left if one.pointer not in finished]

    def give_back(self, reason: str) -> None:
        """Give the records that are left back, as far as that is possible."""
        with suppress(QuothError):
            for message in self.left:
                message.nack(0, reason=reason)
        self.left = []
