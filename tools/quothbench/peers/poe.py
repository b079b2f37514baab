"""Poe, the Erlang ancestor of Quoth: its server and its own client, which `poe.escript` runs."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quothbench.load.clients import Ready
from quothbench.load.driver import VALUE
from quothbench.load.servers import serving
from quothbench.peers.work import CALL, SMALL_ROUNDS, SMALL_STORED, Peer, Way, Work, foreign
from quothwire.errors import error

WRITTEN = 10_000
"""Poe copies the index of a segment for each message: the more are in it, the slower it writes."""
TIMEOUT_S = 120.0

_ESCRIPT = Path(__file__).with_suffix(".escript")
_STORED = "stored"


@contextmanager
def _serving(directory: Path) -> Iterator[str]:
    """Run a server with the settings of Poe's own benchmark; yield its port."""
    with serving("poe", _command("serve", directory), "poe: ready ", _environment()) as server:
        yield server.url


def _store(port: str) -> None:
    _write(lambda: None, port, SMALL_STORED - CALL, _STORED)


def _write(ready: Ready, port: str, messages: int, topic: str = "") -> float:
    """Write to a new topic, which has the messages of one call already. Poe cannot delete it."""
    name = topic or f"measured-{secrets.token_hex(8)}"
    return _client(ready, messages, "write", port, name, messages, CALL, VALUE.hex())


def _read(ready: Ready, port: str, messages: int) -> float:
    """Read page by page, and look at the value of each message."""
    return _client(ready, messages, "read", port, _STORED, SMALL_ROUNDS, CALL, VALUE.hex())


def _client(ready: Ready, messages: int, *arguments: object) -> float:
    """Run Poe's client in a process of its own; return the seconds of its calls."""
    ready()
    done = _run(*arguments)
    if done.returncode:
        raise error("internal", f"poe: {_problem(done)}")
    return _seconds(done.stdout, messages)


def _seconds(printed: str, messages: int) -> float:
    """Return the seconds that a client printed. Raises `BrokerFailure` unless it found so many messages."""
    try:
        count, seconds = printed.split()
        found, took = int(count), float(seconds)
    except ValueError:
        raise error("internal", f"poe: no count and seconds in {printed!r}") from None
    if found != messages:
        raise error("internal", f"poe: {found:,} messages instead of {messages:,}")
    return took


def _missing() -> str:
    """Return what Erlang does not find of Poe, and how to get it, or nothing."""
    done = _run("versions")
    if not done.returncode:
        return ""
    how = "compile github.com/odo/poe and name the folder of its applications in ERL_LIBS"
    return f"Poe is not installed ({done.stdout.strip() or _problem(done)}): {how}"


def _versions() -> str:
    return _run("versions").stdout.strip()


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `poe.escript` to its end. Raises `BrokerFailure` if it cannot start or takes too long."""
    with foreign("poe"):
        return subprocess.run(
            _command(*arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=_environment(),
            timeout=TIMEOUT_S,
            check=False,
        )


def _problem(done: subprocess.CompletedProcess[str]) -> str:
    """Return the first line of an error of Erlang, which names it; the stack follows."""
    return done.stderr.strip().partition("\n")[0] or f"exit status {done.returncode}"


def _command(*arguments: object) -> list[str]:
    return ["escript", str(_ESCRIPT), *map(str, arguments)]


def _environment() -> dict[str, str]:
    """Return ours, and that a failure of Erlang leaves no dump where the command was typed."""
    return {**os.environ, "ERL_CRASH_DUMP_SECONDS": "0"}


POE = Peer(
    "buffered",
    "buffered: up to 100 messages are in the server's memory; it never calls fsync",
    {"escript": "erlang-base"},
    _missing,
    _versions,
    _serving,
    _store,
    (
        Way(Work.PUBLISH, "poe_protocol:write/3", WRITTEN, _write),
        Way(Work.READ_SMALL, "poe_protocol:read/4", SMALL_ROUNDS * SMALL_STORED, _read),
    ),
)
