"""Notifies the service manager that started the daemon: sd_notify(3), datagrams to a socket.

READY=1 once it serves; STATUS= with the text for `systemctl status`; RELOADING=1 and READY=1 around a reload;
STOPPING=1 with the time that it may take. The loop of the front end sends WATCHDOG=1 at intervals. If it
hangs, no other thread does, and the service manager restarts the daemon.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Mapping

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE, WATCHDOG_PID_VARIABLE = "WATCHDOG_USEC", "WATCHDOG_PID"
STATUS_EVERY_S = 1.0
AGAIN_S = 0.05
"""Delay before the next try if the service manager's queue was full."""
QUEUE_WAIT_S = 1.0
"""The main thread waits so long for space in that queue; the front end never waits."""


class Notifier:
    """Sends notifications to a service manager, if there is one.

    address: of a datagram socket; a name that begins with @ is abstract; empty: there is no manager.
    watchdog: the seconds after which the manager restarts a silent daemon; 0: never.
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
        """Report that the broker serves."""
        self._send("READY=1", wait=QUEUE_WAIT_S)

    def status(self, text: str) -> None:
        """Report the state of the daemon in one line."""
        self._send(f"STATUS={text}", wait=QUEUE_WAIT_S)

    def reloading(self) -> None:
        """Report the start of a reload; `ready` reports its end."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}", wait=QUEUE_WAIT_S)

    def stopping(self, seconds: float) -> None:
        """Report that the broker stops, and the time that it may take."""
        microseconds = int(seconds * 1e6)
        self._send("STOPPING=1", "STATUS=stopping", f"EXTEND_TIMEOUT_USEC={microseconds}", wait=QUEUE_WAIT_S)

    def close(self) -> None:
        """Close the socket; later calls do nothing."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- for the front end ------------------------------------------------------------------------------

    def tick(self, now: float, describe: Callable[[], str]) -> float:
        """Feed the watchdog and report a changed status, if that is due; returns the time of the next call.

        describe: returns the status. Returns infinity without a service manager.
        """
        if self._socket is None:
            return math.inf
        if self._feed_every and now >= self._feed_at:
            fed = self._send("WATCHDOG=1")
            self._feed_at = now + (self._feed_every if fed else AGAIN_S)
        if now >= self._status_at:
            self._status_at = now + STATUS_EVERY_S
            status = describe()
            if status != self._status and self._send(f"STATUS={status}"):
                self._status = status
        return min(self._status_at, self._feed_at) if self._feed_every else self._status_at

    def _send(self, *lines: str, wait: float = 0.0) -> bool:
        """Send lines; returns False if that failed. wait: seconds to wait for space in the queue."""
        until = time.monotonic() + wait
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
    """Return the notifier for the parent of this process. Without NOTIFY_SOCKET it does nothing."""
    address = environment.get(SOCKET_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return Notifier()
    microseconds = 0
    if environment.get(WATCHDOG_PID_VARIABLE, str(os.getpid())) == str(os.getpid()):
        with contextlib.suppress(ValueError):
            microseconds = int(environment.get(WATCHDOG_VARIABLE, "0"))
    return Notifier(address, max(0, microseconds) / 1e6)
