"""What was tried to reach a broker, for the error that says that none answers.

libzmq resolves names and connects by itself, again and again, and reports failures only as events. These are
counted here. A name is resolved once more beside it, in a thread that nothing waits for.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from contextlib import suppress

import zmq

from quothwire.quantity import format_span

EVENTS = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_RETRIED
"""What has to be told of by a monitor."""
_KNOWN_NAMES = frozenset({"localhost", "*", ""})


class Attempts:
    """Counts the attempts of one socket to connect to a URL. Belongs to one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._resolution = _Resolution.of(url)
        self.restart()

    def restart(self) -> None:
        """Begin to count anew: the connection was lost, or made."""
        self._since = time.monotonic()
        self._failed = self._accepted = 0

    def note(self, event: int) -> None:
        """Count one of the `EVENTS`."""
        self._accepted += event == zmq.EVENT_CONNECTED
        self._failed += event == zmq.EVENT_CONNECT_RETRIED

    def told(self) -> tuple[str, str | None]:
        """What was found and how long it was tried, and a hint if there is a better one than the usual."""
        reason, hint = self._reason()
        number = self._failed + 1
        often = f"tried {number} times" if number > 1 else "tried"
        seconds = max(0.1, round(time.monotonic() - self._since, 1))
        return f"{reason}, {often} in {format_span(seconds, rough=True)}", hint

    def _reason(self) -> tuple[str, str | None]:
        if self._resolution is not None and self._resolution.failure:
            name, failure = self._resolution.name, self._resolution.failure
            return f"the name {name} {failure}", "is the name spelled right, and known to this machine?"
        path = self._url.removeprefix("ipc://")
        if path != self._url and not path.startswith("@") and not os.path.exists(path):
            return f"there is no socket {path}", None
        if self._accepted:
            hint = "is it the port of something else? a broker's announcements have a port of their own"
            return "what accepts connections there is no broker", hint
        if self._failed:
            return "nothing accepts connections there", None
        return "nothing there reacts", "is the address right? a firewall may drop what is sent to it"


class _Resolution:
    """A name that is being resolved. failure: what is wrong with it, empty if nothing is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure = "is still being resolved"
        threading.Thread(target=self._resolve, name="quoth-resolve", daemon=True).start()

    @classmethod
    def of(cls, url: str) -> _Resolution | None:
        """The resolution of a URL's host; None if that is an address already, or known everywhere."""
        scheme, _, place = url.partition("://")
        host = place.rpartition(":")[0].rpartition(";")[2].strip("[]")
        if scheme != "tcp" or host in _KNOWN_NAMES:
            return None
        with suppress(ValueError):
            ipaddress.ip_address(host.partition("%")[0])
            return None
        return cls(host)

    def _resolve(self) -> None:
        try:
            socket.getaddrinfo(self.name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as problem:
            reason = getattr(problem, "strerror", None) or "it is no host name"
            self.failure = f"cannot be resolved ({reason})"
        else:
            self.failure = ""
