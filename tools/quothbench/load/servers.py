"""Servers that are measured, each a process that ends with the benchmark, and what a process uses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import quoth
from quothcli.cli.session import is_here
from quothwire.errors import error

START_S = 60.0
STOP_S = 60.0

_BROKER_READY = "quothd: ready "
_BARE_READY = "bare: ready "
_PR_SET_PDEATHSIG = 1
_UNTIL_PARENT_ENDS = f"""\
import ctypes, os, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)})
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Executes a command to which Linux sends SIGTERM when the thread that started it ends."""


class Target(NamedTuple):
    """The address of a server, if it reports one. pid: 0 if it runs elsewhere."""

    url: str
    pid: int = 0

    def cpu(self) -> float | None:
        """Return the processor seconds that it has used so far; None if they are unknown here."""
        return cpu_seconds(self.pid) if self.pid else None


@contextmanager
def own_broker(directory: Path, **settings: object) -> Iterator[Target]:
    """Run `quothd` on a directory. settings: keys of its configuration. Raises `Disconnected`."""
    options = [f"--{key.replace('_', '-')}={value}" for key, value in {"port": 0, **settings}.items()]
    command = [*_python("quothd.main"), "--dir", str(directory), *options]
    with serving("the broker", command, _BROKER_READY) as broker:
        yield broker


@contextmanager
def bare_loop(path: Path, read_bytes: int = 0, key_file: str = "") -> Iterator[Target]:
    """Run a bare loop on a file. read_bytes: of each reply; 0: the file gets the payloads of requests.

    key_file: of the server, empty for one without keys.
    """
    command = [*_python("quothbench.load.bare"), _BARE_READY, str(path), str(read_bytes), key_file]
    with serving("the bare loop", command, _BARE_READY) as bare:
        yield bare


def running_broker(client: quoth.Client) -> Target:
    """Return the broker that a client is connected to, with its process if it is on this machine."""
    return Target(client.url, client.status().pid if is_here(client.url) else 0)


@contextmanager
def serving(
    name: str, command: Sequence[str], ready: str, environment: Mapping[str, str] | None = None
) -> Iterator[Target]:
    """Run a server until the block ends. ready: part of the line that reports readiness, before a URL.

    environment: None for that of this process. Raises `Disconnected` if the server ends before it is ready,
    or is not ready within `START_S`. It has a process group of its own, so that Ctrl-C does not reach it.
    """
    if sys.platform == "linux":  # it ends with this process even if that is killed
        command = [sys.executable, "-I", "-S", "-c", _UNTIL_PARENT_ENDS, *command]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        process_group=0,
    )
    assert process.stdout is not None
    drain = threading.Thread(target=_drain, args=(process.stdout,), daemon=True)
    try:
        line = _ready_line(name, process, process.stdout, ready)
        drain.start()  # a full pipe would stop the server
        yield Target(line.partition(ready)[2], process.pid)
    finally:
        _end(process)
        if drain.ident is None:
            process.stdout.close()
        else:
            drain.join(STOP_S)  # a child of the server may have kept the other end


def free_ports(count: int) -> list[int]:
    """Return different unused TCP ports of loopback."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def cpu_seconds(pid: int) -> float | None:
    """Return the processor seconds that a process has used so far; None where the system has no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def difference(now: float | None, then: float | None) -> float | None:
    """Return what was used meanwhile; None if one of the two is unknown."""
    return None if now is None or then is None else now - then


def private_bytes(pid: int) -> int | None:
    """Return the bytes of memory that a process alone holds; None where the system has no /proc."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1_024 for line in lines if line.startswith("Private_"))


def family(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants; only its own where the system has no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _ready_line(name: str, process: subprocess.Popen[str], output: IO[str], ready: str) -> str:
    timeout = threading.Timer(START_S, process.kill)
    timeout.daemon = True  # an interrupt may come before it can be cancelled
    last = ""
    timeout.start()
    try:
        for line in output:
            if ready in line:
                return line.strip()
            last = line.strip() or last
    finally:
        timeout.cancel()
    raise error("disconnected", f"{name} did not start: {last}")


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


def _python(module: str) -> list[str]:
    return [sys.executable, "-c", f"from {module} import main; main()"]
