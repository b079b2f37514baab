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
from typing import TYPE_CHECKING

from quothwire.text.quantity import format_span

if TYPE_CHECKING:
    from socket import socket

PROBE_S = 0.1
"""Seconds that the attempt may take: several round trips of a network, too short for a person to notice."""
MECHANISM_S = 0.5
"""Seconds that each step of asking for the mechanism may take, which only follows on failed handshakes."""
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03"
"""The beginning of a greeting of ZMTP 3, on which the other side sends all of its own."""
_MECHANISM = slice(12, 32)
"""The place of the mechanism's name in a greeting."""
_KNOWN_NAMES = frozenset({"localhost", "*", ""})


class Attempts:
    """The attempts to reach a URL. Belongs to one thread."""

    def __init__(self, url: str) -> None:
        self._scheme, _, self._path = url.partition("://")
        host, _, self._port = self._path.rpartition(";")[2].rpartition(":")
        self._name = self._address = host.strip("[]")
        self._failure = ""
        """The reason why there is no address of the name yet; empty if there is one."""
        if self._scheme == "tcp" and not _is_known(self._name):
            self._failure = "is still being resolved"
            threading.Thread(target=self._resolve, name="quoth-resolve", daemon=True).start()
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

    def mechanism(self) -> str:
        """Return the mechanism of the ZeroMQ socket there, NULL or CURVE; empty if there is none.

        Takes three times `MECHANISM_S` at most.
        """
        greeting = b""
        with suppress(OSError, ValueError), self._connection(MECHANISM_S) as probe:
            probe.sendall(_GREETING)
            while len(greeting) < _MECHANISM.stop:
                if not (found := probe.recv(_MECHANISM.stop - len(greeting))):
                    break
                greeting += found
        return greeting[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")

    def _reason(self) -> tuple[str, str | None]:
        if self._failure:
            hint = "is the name spelled right, and known to this machine?"
            return f"the name {self._name} {self._failure}", hint
        if self._scheme == "ipc" and not self._path.startswith("@"):
            if not os.path.exists(self._path):
                return f"there is no socket {self._path}", None
            if not os.access(self._path, os.W_OK):
                hint = "`ls -l` shows who may; the broker's keys ipc_mode and ipc_group set it"
                return f"this user may not connect to {self._path}", hint
        match self._connects() if self._scheme == "tcp" else None:
            case True:
                hint = "is it the port of something else? a broker's announcements have a port of their own"
                return "what accepts connections there is no broker", hint
            case False:
                return "nothing accepts connections there", None
            case _:
                return "nothing there reacts", "is the address right? a firewall may drop what is sent to it"

    def _connects(self) -> bool | None:
        """Return True if the port accepts a connection, False if it refuses, None for no answer."""
        try:
            self._connection(PROBE_S).close()
        except ConnectionRefusedError:
            return False
        except (OSError, ValueError):
            return None
        return True

    def _connection(self, seconds: float) -> socket:
        """Connect to a TCP port or a path; each step may take so long. Raises OSError, or ValueError."""
        import socket  # slow to load, and not needed if a broker answers

        if self._scheme == "tcp":
            return socket.create_connection((self._address, int(self._port)), seconds)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(seconds)
            connection.connect("\0" + self._path[1:] if self._path.startswith("@") else self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _resolve(self) -> None:
        import socket  # see above

        try:
            found = socket.getaddrinfo(self._name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as problem:
            reason = getattr(problem, "strerror", None) or "it is no host name"
            self._failure = f"cannot be resolved ({reason})"
        else:
            self._address = str(found[0][4][0])
            self._failure = ""


def _is_known(host: str) -> bool:
    """Return True for an address, or a name that needs no resolution."""
    with suppress(ValueError):
        ipaddress.ip_address(host.partition("%")[0])
        return True
    return host in _KNOWN_NAMES
