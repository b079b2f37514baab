"""The reason why no broker answers at a URL, for the text of an error.

libzmq resolves names and connects by itself, again and again, and reports each attempt as an event. These are
not counted: an idle client reads no events, and they would pile up without end. So the reason comes from one
more attempt, made here. A name is resolved in a thread that nothing waits for.
"""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from contextlib import suppress

from quothwire.text.quantity import format_span

PROBE_S = 0.1
"""Seconds that the attempt may take: several round trips of a network, too short for a person to notice."""
_KNOWN_NAMES = frozenset({"localhost", "*", ""})


class Attempts:
    """The attempts to reach a URL. Belongs to one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._resolution = _Resolution.of(url)
        self.restart()

    def restart(self) -> None:
        """Measure from now on: the connection was lost, or made."""
        self._since = time.monotonic()

    def describe(self) -> tuple[str, str | None]:
        """Try once more; return the reason with the time since the first attempt, and a hint if there is one.

        Takes `PROBE_S` at most.
        """
        reason, hint = self._reason()
        seconds = max(0.1, round(time.monotonic() - self._since, 1))
        return f"{reason}, tried for {format_span(seconds, rough=True)}", hint

    def _reason(self) -> tuple[str, str | None]:
        if self._resolution is not None and self._resolution.failure:
            name, failure = self._resolution.name, self._resolution.failure
            return f"the name {name} {failure}", "is the name spelled right, and known to this machine?"
        scheme, _, path = self._url.partition("://")
        if scheme == "ipc" and not path.startswith("@") and not os.path.exists(path):
            return f"there is no socket {path}", None
        match self._connects() if scheme == "tcp" else None:
            case True:
                hint = "is it the port of something else? a broker's announcements have a port of their own"
                return "what accepts connections there is no broker", hint
            case False:
                return "nothing accepts connections there", None
            case _:
                return "nothing there reacts", "is the address right? a firewall may drop what is sent to it"

    def _connects(self) -> bool | None:
        """Return True if the port accepts a connection, False if it refuses, None for no answer."""
        host, _, port = self._url.partition("://")[2].rpartition(";")[2].rpartition(":")
        address = self._resolution.address if self._resolution is not None else host.strip("[]")
        import socket  # slow to load, and not needed if a broker answers

        try:
            socket.create_connection((address, int(port)), PROBE_S).close()
        except ConnectionRefusedError:
            return False
        except (OSError, ValueError):
            return None
        return True


class _Resolution:
    """A name that is being resolved. failure: the problem, empty if there is none. address: the result."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.failure = "is still being resolved"
        threading.Thread(target=self._resolve, name="quoth-resolve", daemon=True).start()

    @classmethod
    def of(cls, url: str) -> _Resolution | None:
        """Return the resolution of a URL's host; None for an address or a name known everywhere."""
        scheme, _, place = url.partition("://")
        host = place.rpartition(":")[0].rpartition(";")[2].strip("[]")
        if scheme != "tcp" or host in _KNOWN_NAMES:
            return None
        with suppress(ValueError):
            ipaddress.ip_address(host.partition("%")[0])
            return None
        return cls(host)

    def _resolve(self) -> None:
        import socket  # see above

        try:
            found = socket.getaddrinfo(self.name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as problem:
            reason = getattr(problem, "strerror", None) or "it is no host name"
            self.failure = f"cannot be resolved ({reason})"
        else:
            self.address = str(found[0][4][0])
            self.failure = ""
