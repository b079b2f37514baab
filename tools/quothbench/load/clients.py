"""Clients: processes that prepare some work, begin it together and report what it took."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self, TypeAlias

from quothwire.errors import QuothError, error

Ready = Callable[[], None]
"""Called by a client when it is prepared; returns when all clients are."""
Task = Callable[..., Any]
"""The work of a client. It gets a `Ready` and the arguments of `Clients.run`."""
Pipe: TypeAlias = "Connection[Any, Any]"

_READY = "ready"
_spawn = get_context("spawn")
"""A forked child would share the sockets and threads of its parent."""


class ClientResult(NamedTuple):
    """The result of one client. began, ended: by the monotonic clock of the machine. cpu: seconds."""

    began: float
    ended: float
    cpu: float
    result: Any


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

    def run(
        self, task: Task, *arguments: Sequence[Any], at_begin: Callable[[], object] = lambda: None
    ) -> list[ClientResult]:
        """Let each client execute a task. arguments: a tuple for each client, or one for all of them.

        at_begin: called when all clients are prepared. Raises the `QuothError` of a client that failed.
        """
        shares = arguments if len(arguments) > 1 else arguments * self.count
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send((task, tuple(share)))
        for pipe in self._pipes:
            _receive(pipe)
        at_begin()
        for pipe in self._pipes:
            pipe.send(_READY)
        return [_receive(pipe) for pipe in self._pipes]


def play(ready: Ready, part: Callable[..., Any], *arguments: Any) -> Any:
    """Execute the part of one of several clients that do different things."""
    return part(ready, *arguments)


def elapsed(done: Sequence[ClientResult]) -> float:
    """Return the seconds from the first beginning to the last end."""
    return max(one.ended for one in done) - min(one.began for one in done)


def _receive(pipe: Pipe) -> Any:
    try:
        received = pipe.recv()
    except EOFError:
        raise error("internal", "a client of the benchmark ended", "is there enough memory?") from None
    if isinstance(received, QuothError):
        raise received
    return received


def _serve(pipe: Pipe) -> None:
    """Execute tasks until the parent closes the pipe."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            task, arguments = pipe.recv()
            try:
                pipe.send(_execute(task, arguments, pipe))
            except QuothError as problem:
                pipe.send(problem)


def _end_with_parent() -> None:
    """End this process when its parent has ended, even if that was killed."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _execute(task: Task, arguments: Sequence[Any], pipe: Pipe) -> ClientResult:
    began = used = 0.0

    def ready() -> None:
        nonlocal began, used
        pipe.send(_READY)
        pipe.recv()
        began, used = time.monotonic(), time.process_time()

    result = task(ready, *arguments)
    return ClientResult(began, time.monotonic(), time.process_time() - used, result)
