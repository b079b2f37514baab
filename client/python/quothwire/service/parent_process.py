"""The broker as the parent of a process: the child's side of what both agree on.

The end of stdin is the end of the broker, also after SIGKILL. Where a process that the broker has forked
still holds the other end, the child notices within a second that it has another parent. The first line of
stdin is the key with which the child connects, if clients need one: other programs may see arguments and
variables. A line of JSON on stdout is a report, which the broker logs.
"""

from __future__ import annotations

import json
import os
import select
from typing import Any, NoReturn

from quothwire.security.key_file import Key

SUPERVISED, KEY_ON_STDIN = "--supervised", "--key-on-stdin"
"""The arguments of a child whose parent is the broker, and of one that gets a key."""


PARENT_CHECK_S = 1.0
"""Between two checks whether the parent has ended."""


def encode_key_line(key: Key) -> bytes:
    """Return the line with which the broker hands over a key."""
    return json.dumps(key).encode() + b"\n"


def key_on_stdin() -> Key:
    """Read the first line of stdin, and no more. Ends the process if the parent has ended."""
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 1)
        if not read:
            os._exit(0)
        line += read
    name, public_key, secret_key, server_keys = json.loads(line)
    return Key(name, public_key, secret_key, tuple(server_keys))


def end_with_parent() -> NoReturn:
    """Wait for the end of stdin or of the parent, and end the process at once. For a thread of its own."""
    parent = os.getppid()
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], PARENT_CHECK_S)
        if ready and not os.read(0, 1_024):
            break
    os._exit(0)


def report(event: str, **fields: Any) -> None:
    """Write an event as a line of JSON to stdout, where a broker that is the parent reads it.

    Ends the process if the parent has ended.
    """
    try:
        os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")
    except BrokenPipeError:
        os._exit(0)
