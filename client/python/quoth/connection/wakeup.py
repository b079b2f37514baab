"""A bell: any thread rings, the thread that polls its descriptor wakes up."""

from __future__ import annotations

import contextlib
import os


class PipeWakeup:
    """A pipe with at most a few bytes in it."""

    def __init__(self) -> None:
        self.fd, self._ring = os.pipe()
        for fd in (self.fd, self._ring):
            os.set_blocking(fd, False)

    def ring(self) -> None:
        """Wake the thread that polls."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._ring, b"\0")

    def hush(self) -> None:
        """Take note of it."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4_096)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.fd)
        os.close(self._ring)
