"""Runs the process that speaks Poe's TCP protocol, and holds the socket on which it listens.

The broker binds the socket at its start, and the process inherits it: clients that connect while the process
is started again wait, and the port stays the same.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from quothd.config.check import Tcp, poe_address
from quothd.config.config import Config
from quothd.service.process_supervisor import ProcessSupervisor
from quothwire.errors import error
from quothwire.security.key_file import Key

BACKLOG = 100
"""Connections that wait to be accepted, for a second at the start of the process. asyncio has the same."""
CLOSING_S = 0.05
_TRIES = 20
"""The process of a broker that was killed closes the port a moment after the end of that broker."""
_MODULE = "quothd.gateways.poe"
_CONNECTIONS = "poe_connections"
"""A report that is a gauge and no event."""


class PoeListener(NamedTuple):
    """The socket for clients of Poe. url: its address."""

    socket: socket.socket
    url: str

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        self.socket.close()


def open_listener(config: Config) -> PoeListener | None:
    """Bind the socket for clients of Poe; returns None if the configuration has no address for them.

    Raises `RequestError` ``bad_setting``, or OSError where another program listens.
    """
    address = poe_address(config)
    if address is None:
        return None
    for _ in range(_TRIES):
        try:
            listener = _bound(address)
            break
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                text = f"poe_listen: cannot listen on {config.poe_listen}: {problem.strerror}"
                raise error("bad_setting", text, "it has to be an address of this machine") from None
        except UnicodeError:  # a part of the name is empty or too long, see `socket.getaddrinfo`
            text = f"poe_listen: {address.host!r:.100} is no host"
            raise error("bad_setting", text, "it has to be an address of this machine") from None
        time.sleep(CLOSING_S)
    else:
        text = f"poe_listen: cannot listen on {config.poe_listen}: another program does"
        raise OSError(errno.EADDRINUSE, text)
    host, port, *_ = listener.getsockname()
    return PoeListener(listener, f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")


def _bound(address: Tcp) -> socket.socket:
    """Return a listening socket. Raises OSError, and UnicodeError for what is no name."""
    host = "0.0.0.0" if address.host == "*" else address.host
    family, _, _, _, place = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)[0]
    return socket.create_server((place[0], place[1]), family=family, backlog=BACKLOG)


class PoeSupervisor(ProcessSupervisor):
    """Starts the process as soon as the broker serves. Owned by the front end's thread.

    urls: those of the broker. listener: closed by `stop`; None if there is no process. key: that of the
    process, None if clients need none.
    """

    failed, ended = "poe_failed", "poe_ended"

    def __init__(
        self, config: Config, urls: Sequence[str], listener: PoeListener | None, key: Key | None = None
    ) -> None:
        descriptors = () if listener is None else (listener.socket.fileno(),)
        limits = str(config.poe_connections_max), str(config.poe_idle)
        arguments = *map(str, descriptors), *limits
        super().__init__("poe", _MODULE, urls, key, arguments=arguments, descriptors=descriptors)
        self._listener = listener
        self._connections = 0

    def counters(self) -> dict[str, int]:
        """Return the state of the process and its connections; nothing if there is none."""
        if self._listener is None:
            return {}
        connections = 0 if self._process is None else self._connections
        return {**super().counters(), _CONNECTIONS: connections}

    def stop(self) -> None:
        """Kill the process, and close the socket."""
        if self._listener is not None:
            self._listener.close()
        super().stop()

    def _is_wanted(self) -> bool:
        return self._listener is not None

    def _take_report(self, report: dict[str, Any]) -> None:
        if report["event"] == _CONNECTIONS:
            self._connections = int(report["connections"])
        else:
            super()._take_report(report)
