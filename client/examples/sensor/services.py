"""Processes that are killed and started again."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

WAIT_S = 60.0
"""Far longer than any of these processes takes to start or to end."""


class Failure(Exception):
    """A process has ended by itself, or does not do what it was started for."""


class Service:
    """A process of Python. log: the file for its output. ready: is in a line that it prints once it serves.

    on_line: called with each line of its output, in a thread. One thread at a time calls the methods.
    """

    def __init__(
        self, log: Path, *command: str, ready: str = "", on_line: Callable[[str], None] = lambda _: None
    ) -> None:
        self._log, self._command, self._ready, self._on_line = log, command, ready, on_line
        self._is_ready = Event()
        self._process: subprocess.Popen[str] | None = None
        self._reader: Thread | None = None

    def start(self, *more: str) -> None:
        """Start it. more: further arguments."""
        self._is_ready.clear()
        self._process = subprocess.Popen(
            [sys.executable, *self._command, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def await_ready(self) -> None:
        """Wait until it serves. Raises `Failure`."""
        if not self._is_ready.wait(WAIT_S):
            raise self._failure("is not ready")
        self.check()

    def check(self) -> None:
        """Raise `Failure` if it has ended by itself."""
        if self._process is not None and (status := self._process.poll()) is not None:
            raise self._failure(f"has ended by itself with status {status}")

    def write(self, line: str) -> None:
        """Give it a line. Raises `Failure` if it has ended by itself."""
        self.check()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it as a loss of power does; all that it has printed was read then. Raises as `check` does."""
        self.check()
        self.end()

    def end(self) -> None:
        """End it, unless it has ended."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def terminate(self) -> None:
        """Ask it to end, and wait until it has. Raises `Failure` if it had ended by itself, or fails."""
        self.check()
        if self._process is not None:
            self._process.terminate()
            self.succeed()

    def succeed(self) -> None:
        """Wait until it has ended. Raises `Failure` unless its exit status is 0."""
        if status := self.wait():
            raise self._failure(f"has ended with status {status}")

    def wait(self) -> int:
        """Wait until it has ended; returns its exit status. Raises `Failure` if that takes too long."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._reader is not None
        try:
            status = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise self._failure(f"has not ended within {WAIT_S:g} s") from None
        self._reader.join()
        self._process.stdin.close()
        self._process = None
        return status

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout, self._log.open("a", encoding="utf-8") as log:
            for line in process.stdout:
                log.write(line)
                self._on_line(line.rstrip("\n"))
                if self._ready in line:
                    self._is_ready.set()
        self._is_ready.set()  # it has ended: nothing has to be waited for

    def _failure(self, what: str) -> Failure:
        if self._reader is not None and self._process is not None and self._process.poll() is not None:
            self._reader.join()
        said = self._log.read_text(encoding="utf-8")[-2_000:] if self._log.exists() else ""
        return Failure(f"{self._log.stem} {what}: {said}")


def free_port() -> int:
    """Return a port that is free, as is the next one.

    It lies below those that the system gives to connections: such a one could take it while nothing listens.
    """
    while True:
        port = random.randrange(28_000, 30_000, 2)
        with suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 1))
            return port
