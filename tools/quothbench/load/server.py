"""A server: a process of the benchmark's own that says when it is ready, and is ended by its id."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, NamedTuple

from quothbench.load.clients import ended_with_us
from quothwire.errors import error

START_S = 60.0
STOP_S = 60.0


class Server(NamedTuple):
    """A server that runs. said: the line by which it told that it is ready."""

    pid: int
    said: str


@contextmanager
def serving(
    name: str, command: Sequence[str], ready: str, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run a server. ready: what is in the line by which it tells that it is. environment: None for ours.

    Raises `Disconnected` if it ends before that, or is not ready within `START_S`. It has a process group of
    its own: Ctrl-C is for us, and we end it when it is not needed any more, or do not live any more.
    """
    process = subprocess.Popen(
        ended_with_us(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        process_group=0,
    )
    assert process.stdout is not None
    rest = threading.Thread(target=_drain, args=(process.stdout,), daemon=True)
    try:
        said = _ready(name, process, process.stdout, ready)
        rest.start()  # or it would wait for us to read
        yield Server(process.pid, said)
    finally:
        _end(process)
        if rest.ident is None:
            process.stdout.close()
        else:
            rest.join(STOP_S)  # a child of it may have kept the other end


def free_ports(count: int) -> list[int]:
    """Different TCP ports of loopback that nobody listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _ready(name: str, process: subprocess.Popen[str], output: IO[str], ready: str) -> str:
    """The line that tells it."""
    patience = threading.Timer(START_S, process.kill)
    patience.daemon = True  # an interrupt may come before it can be cancelled
    said = ""
    patience.start()
    try:
        for line in output:
            if ready in line:
                return line.strip()
            said = line.strip() or said
    finally:
        patience.cancel()
    raise error("disconnected", f"{name} did not start: {said}")


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _drain(output: IO[str]) -> None:
    with output:
        deque(output, 0)
