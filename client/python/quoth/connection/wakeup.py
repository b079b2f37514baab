"""A wakeup: any thread ends the wait of a thread that polls its descriptor."""

from __future__ import annotations

import contextlib
import os


class PipeWakeup:
    """A pipe with at most a few bytes in it."""

    def __init__(self) -> None:
        self.fd, self._end = os.pipe()
        for fd in (self.fd, self._end):
            os.set_blocking(fd, False)

    def wake(self) -> None:
        """End the wait of the thread that polls."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._end, b"\0")

    def clear(self) -> None:
        """Read the bytes of earlier wakeups."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4_096)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.fd)
        os.close(self._end)
