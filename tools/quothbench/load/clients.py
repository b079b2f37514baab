"""Processes: what the operating system says that they have used, and clients that begin together."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

from quothwire.errors import QuothError, error

_READY = "ready"
_PR_SET_PDEATHSIG = 1
_UNTIL_PARENT_ENDS = f"""\
import ctypes, os, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)})
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Run a command that the system sends SIGTERM when the thread that has started it ends."""
_spawn = get_context("spawn")
"""A forked child would share the sockets and threads of its parent."""


Pipe: TypeAlias = "Connection[Any, Any]"


class Done(NamedTuple):
    """What a client brought back. began, ended: by the monotonic clock of the machine. cpu: seconds."""

    began: float
    ended: float
    cpu: float
    result: Any


Work = Callable[..., Any]
"""Gets a function to call once everything is prepared, which returns when all clients are, and arguments."""


class Clients:
    """Client processes, each of which does the same work at the same time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pipes: list[Pipe] = []
        self._processes = []
        for _ in range(count):
            ours, theirs = _spawn.Pipe()
            process = _spawn.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def run(self, work: Work, *arguments: Sequence[Any]) -> list[Done]:
        """Let each client do some work. arguments: a tuple for each client, or one for all of them.

        Raises what went wrong in a client.
        """
        shares = arguments if len(arguments) > 1 else arguments * self.count
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send((work, tuple(share)))
        for pipe in self._pipes:
            _heard(pipe)
        for pipe in self._pipes:
            pipe.send(_READY)
        return [_heard(pipe) for pipe in self._pipes]


def end_with_parent() -> None:
    """Let this process end with the one that has started it, even if that is killed."""
    threading.Thread(target=_end_after_parent, daemon=True).start()


def ended_with_us(command: Sequence[str]) -> list[str]:
    """A command that ends with this thread even if that is killed, where the system is Linux."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _UNTIL_PARENT_ENDS, *command]


def elapsed(done: Sequence[Done]) -> float:
    """Seconds from the first beginning to the last end."""
    return max(one.ended for one in done) - min(one.began for one in done)


def cpu_seconds(pid: int) -> float | None:
    """Seconds of processor time that a process has used so far; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all that descend from it; it alone where the system does not tell."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def private_bytes(pid: int) -> int | None:
    """Bytes of memory that a process alone holds; None where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1_024 for line in lines if line.startswith("Private_"))


def _heard(pipe: Pipe) -> Any:
    """What a client says. Raises what went wrong in it."""
    try:
        said = pipe.recv()
    except EOFError:
        raise error("internal", "a client of the benchmark ended", "is there enough memory?") from None
    if isinstance(said, QuothError):
        raise said
    return said


def _end_after_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _serve(pipe: Pipe) -> None:
    """A client's life: work until nobody wants more."""
    end_with_parent()
    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            work, arguments = pipe.recv()
            try:
                pipe.send(_do(work, arguments, pipe))
            except QuothError as problem:
                pipe.send(problem)


def _do(work: Work, arguments: Sequence[Any], pipe: Pipe) -> Done:
    began = used = 0.0

    def ready() -> None:
        nonlocal began, used
        pipe.send(_READY)
        pipe.recv()
        began, used = time.monotonic(), time.process_time()

    result = work(ready, *arguments)
    return Done(began, time.monotonic(), time.process_time() - used, result)
