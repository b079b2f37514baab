"""Runs the rule sets of a broker.

    python -m quothrules URL [--supervised] [--key-on-stdin]

It ends at SIGTERM or Ctrl-C, and gives back what it has in hand. With --supervised it ends with its stdin,
too, at once: its parent is the broker, and there is nothing to give back to. With --key-on-stdin the first
line of stdin is the key with which it connects, as a list in JSON.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NamedTuple

import zmq

import quoth
from quoth.core.options import DEFAULT_URL
from quothrules.service.rules_service import RulesService
from quothwire.errors import QuothError
from quothwire.service.parent_process import KEY_ON_STDIN, SUPERVISED, end_with_parent, key_on_stdin

CONNECT_S = 30.0
FILES_MAX = 262_144
"""Descriptors that the process asks the system for. A worker takes about eleven."""


class _Broker(NamedTuple):
    """The address of the broker, and the context of all sockets."""

    url: str
    context: zmq.Context[zmq.Socket[bytes]]


def main() -> None:
    """Run until the process is to end."""
    arguments = [one for one in sys.argv[1:] if one not in (SUPERVISED, KEY_ON_STDIN)]
    url = arguments[0] if arguments else DEFAULT_URL
    service: RulesService | None = None

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if service is None:  # it waits for the broker, and has nothing in hand
            os._exit(0)
        service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    key = key_on_stdin() if KEY_ON_STDIN in sys.argv else None
    if SUPERVISED in sys.argv:
        threading.Thread(target=end_with_parent, name="quoth-rules-parent", daemon=True).start()
    _raise_limits(context := zmq.Context())
    try:
        client = quoth.connect(_Broker(url, context), wait=CONNECT_S, key=key)
    except QuothError as problem:
        sys.exit(f"quothrules: {problem}")
    with client:
        service = RulesService(client)
        service.run()


def _raise_limits(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """Allow as many sockets as possible. A context has 1,023 by default: too few for 300 workers."""
    context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the system has a limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    main()
