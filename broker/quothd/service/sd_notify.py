"""What the daemon tells the service manager that started it: sd_notify(3), datagrams to a socket.

READY=1 once the directory is locked, the topics are listed and the sockets are bound; STATUS= in words for
`systemctl status`; RELOADING=1 and READY=1 around a reload; STOPPING=1 with the time that it may take. And
WATCHDOG=1 again and again, which only whoever has the front may say, from its loop: if that stands still,
nobody does, and the service manager ends the daemon and starts it anew.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE, WATCHDOG_PID_VARIABLE = "WATCHDOG_USEC", "WATCHDOG_PID"
STATUS_EVERY_S = 1.0
AGAIN_S = 0.05
"""Where the service manager's queue was full, the watchdog is fed again after this."""
PATIENCE_S = 1.0
"""The main thread waits for room in that queue; the front end never does."""


class Notifier:
    """Tells a service manager, or nobody.

    address: of a datagram socket; a name that begins with @ is abstract; empty: nobody listens. watchdog:
    seconds within which the manager wants to hear from the front end; 0: it does not.
    """

    def __init__(self, address: str = "", watchdog: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        self._feed_every = watchdog / 2 if address else 0.0
        self._feed_at = 0.0
        self._status_at = 0.0
        self._status = ""

    # -- for the main thread ----------------------------------------------------------------------------

    def ready(self) -> None:
        """The broker serves."""
        self._send("READY=1", patience=PATIENCE_S)

    def status(self, text: str) -> None:
        """Say in a line what it is at."""
        self._send(f"STATUS={text}", patience=PATIENCE_S)

    def reloading(self) -> None:
        """The configuration is being read again; `ready` comes when that is over."""
        moment = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        self._send("RELOADING=1", f"MONOTONIC_USEC={moment}", patience=PATIENCE_S)

    def stopping(self, seconds: float) -> None:
        """The broker ends, and it may take so long."""
        microseconds = int(seconds * 1e6)
        self._send(
            "STOPPING=1", "STATUS=stopping", f"EXTEND_TIMEOUT_USEC={microseconds}", patience=PATIENCE_S
        )

    def close(self) -> None:
        """Tell nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- for whoever has the front ----------------------------------------------------------------------

    def tick(self, now: float, describe: Callable[[], str]) -> float | None:
        """Feed the watchdog and say what has changed, if that is due; returns when to come back.

        describe: what the broker is at. None: there is nobody to tell.
        """
        if self._socket is None:
            return None
        if self._feed_every and now >= self._feed_at:
            fed = self._send("WATCHDOG=1")
            self._feed_at = now + (self._feed_every if fed else AGAIN_S)
        if now >= self._status_at:
            self._status_at = now + STATUS_EVERY_S
            status = describe()
            if status != self._status and self._send(f"STATUS={status}"):
                self._status = status
        return min(self._status_at, self._feed_at) if self._feed_every else self._status_at

    def _send(self, *lines: str, patience: float = 0.0) -> bool:
        """Say something; False if it was not taken. patience: seconds to wait for room."""
        until = time.monotonic() + patience
        content = "\n".join(lines).encode("utf-8", "backslashreplace")
        while self._socket is not None:
            try:
                self._socket.sendto(content, socket.MSG_DONTWAIT, self._address)
                return True
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(AGAIN_S)
            except OSError:
                return False
        return False


def from_environment(environment: Mapping[str, str] = os.environ) -> Notifier:
    """The notifier for whoever has started this process. Without NOTIFY_SOCKET it tells nobody."""
    address = environment.get(SOCKET_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return Notifier()
    microseconds = 0
    if environment.get(WATCHDOG_PID_VARIABLE, str(os.getpid())) == str(os.getpid()):
        with contextlib.suppress(ValueError):
            microseconds = int(environment.get(WATCHDOG_VARIABLE, "0"))
    return Notifier(address, max(0, microseconds) / 1e6)
