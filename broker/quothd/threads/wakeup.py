"""Wakes a thread that waits for input, at most once a burst."""

from __future__ import annotations

import os
from contextlib import suppress


class Wakeup:
    """A pipe into the poll of one thread. Any thread wakes it.

    fd: readable while the thread has to wake up.
    """

    def __init__(self) -> None:
        self._attended = False
        self.fd, self._wakeup = os.pipe()
        for end in (self.fd, self._wakeup):
            os.set_blocking(end, False)

    def notify(self) -> None:
        """Wake the thread if it waits: what was handed over before is seen."""
        if not self._attended:
            self._attended = True
            self.wake()

    def wake(self) -> None:
        """Wake the thread, whether it waits or not."""
        with suppress(BlockingIOError):
            os.write(self._wakeup, b"\0")

    def attend(self, *, readable: bool) -> None:
        """The thread is awake: it needs no wakeup. readable: whether `fd` is."""
        self._attended = True
        if readable:
            self._drain()

    def arm(self) -> None:
        """The thread will wait: `notify` wakes it. It has to look for work once more before it waits."""
        self._attended = False

    def close(self) -> None:
        """Close its descriptors; no thread wakes it any more."""
        for end in (self.fd, self._wakeup):
            os.close(end)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.fd, 4_096)
