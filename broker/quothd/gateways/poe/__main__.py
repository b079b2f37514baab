"""Serves clients of Poe at a socket that the broker has bound.

    python -m quothd.gateways.poe URL --supervised [--key-on-stdin] DESCRIPTOR CONNECTIONS_MAX IDLE

URL: of the broker. DESCRIPTOR: of the listening socket, inherited. CONNECTIONS_MAX: fewer where there are not
so many descriptors. IDLE: seconds. The process ends with the broker, its parent, and with an error once its
client of the broker has ended: then the broker starts it again.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import sys
import threading
from contextlib import suppress

import quoth.aio
from quothd.gateways.poe.server import PoeServer
from quothd.gateways.poe.topics import PoeTopics
from quothwire.errors import QuothError
from quothwire.security.key_file import Key
from quothwire.service.parent_process import KEY_ON_STDIN, SUPERVISED, end_with_parent, key_on_stdin

CONNECT_S = 30.0
DESCRIPTORS_KEPT = 192
"""About 50 of the process itself, and 100 that are accepted before those that are too many are closed."""


def main() -> None:
    """Serve until the process is ended."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is to be put in order
    options = {SUPERVISED, KEY_ON_STDIN}
    url, descriptor, connections_max, idle = (one for one in sys.argv[1:] if one not in options)
    key = key_on_stdin() if KEY_ON_STDIN in sys.argv else None
    if SUPERVISED in sys.argv:
        threading.Thread(target=end_with_parent, name="quoth-poe-parent", daemon=True).start()
    try:
        asyncio.run(_serve(url, key, int(descriptor), int(connections_max), float(idle)))
    except QuothError as problem:
        sys.exit(f"quothd.gateways.poe: {problem}")


async def _serve(url: str, key: Key | None, descriptor: int, connections_max: int, idle: float) -> None:
    async with quoth.aio.connect(url, wait=CONNECT_S, key=key) as client:
        server = PoeServer(PoeTopics(client), _connections_that_fit(connections_max), idle)
        await server.serve(socket.socket(fileno=descriptor))


def _connections_that_fit(wanted: int) -> int:
    """Return how many connections there are descriptors for, after allowing more where `wanted` takes them.

    A lack of descriptors would end the client of the broker, and the accepting of connections for a second.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + DESCRIPTORS_KEPT
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return wanted
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(OSError, ValueError):  # the system has a limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return max(1, soft - DESCRIPTORS_KEPT)


if __name__ == "__main__":
    main()
