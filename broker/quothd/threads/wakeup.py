"""A wake-up call for a poller: an eventfd, or a socket pair where there is none."""

from __future__ import annotations

import contextlib
import os
import socket
import sys


class Wakeup:
    """Any thread rings; the poller's thread waits for `fd` to become readable and calls `hush`."""

    def __init__(self) -> None:
        self._pair: tuple[socket.socket, socket.socket] | None = None
        if sys.platform == "linux":
            self.fd = self._ring = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._pair = socket.socketpair()
            for end in self._pair:
                end.setblocking(False)
            self.fd, self._ring = self._pair[0].fileno(), self._pair[1].fileno()

    def ring(self) -> None:
        """Make `fd` readable."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._ring, b"\1\0\0\0\0\0\0\0")

    def hush(self) -> None:
        """Make it silent again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4_096)

    def close(self) -> None:
        """Close the descriptors."""
        if self._pair is None:
            os.close(self.fd)
        else:
            for end in self._pair:
                end.close()
