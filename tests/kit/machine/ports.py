"""TCP ports for tests: none that the system gives to others, and each for one process at a time."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections import deque

_PORTS = range(10_000, 28_000, 2)
"""Below the ports that the system gives to sockets without one, 32,768 and up on Linux. Between them are
those of the conformance kit, and of the examples that start a broker again."""
_RANDOM = random.SystemRandom()
_RESERVED_MAX = 200
_RESERVED: deque[int] = deque()
"""Descriptors of UDP sockets, one for each of the newest ports: no other process can bind the like."""


def free_port() -> int:
    """Return a port that stays free for this process, as does the next one, also while nothing listens there.

    Clients of a broker that has ended try to reach its port until they are closed. With a port of the
    system's they would meet any program that listens without a port of its own, Spark for one.
    """
    while True:
        port = _RANDOM.choice(_PORTS)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            reserved = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            reserved.bind(("127.0.0.1", port))
            for number in (port, port + 1):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            _RESERVED.append(reserved.detach())
            if len(_RESERVED) > _RESERVED_MAX:
                os.close(_RESERVED.popleft())
            return port
