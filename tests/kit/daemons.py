"""Processes that serve: quothd, quoth-web. On a free port, ended by their pid."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Self

from kit.deadlines import DEADLINE_S
from kit.machine.forkserver import start
from kit.machine.ports import free_port
from kit.machine.processes import freeze

_WENT_WRONG = ("Traceback", "Exception ignored", "Fatal Python error", "never awaited")
_END = "(end of its output)"


class DaemonProcess:
    """A daemon as a process. Made by fixtures, which also end it.

    command: the one to execute. ready: begins the line that it writes when it serves; a URL follows.
    settings: keys of the configuration, as arguments. environment: variables for it; those of this process
    that begin with QUOTH_ are not handed on. popen: more for `subprocess.Popen`. prefix: arguments in front
    of the command; they may be changed for the next start.
    """

    command: tuple[str, ...] = ()
    ready = ""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        popen: Mapping[str, Any] | None = None,
        prefix: Sequence[str] = (),
        **settings: object,
    ) -> None:
        self.prefix = prefix
        self.settings: dict[str, object] = {"port": free_port(), **settings}
        self._arguments = arguments
        self._environment = dict(environment or {})
        self._popen = dict(popen or {})
        self._process: subprocess.Popen[str] | None = None
        self._said = threading.Condition()
        self._lines: list[str] = []
        self._reader: threading.Thread | None = None
        self.url = ""

    # -- start and end ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it and wait until it is ready."""
        self.launch()
        self.url = self.wait_for(self.ready).partition(self.ready)[2]
        return self

    def launch(self) -> None:
        """Start it without waiting until it is ready."""
        assert self._process is None or self.exit_status is not None, "it is running"
        if self._reader is not None:
            self._reader.join()
        self._lines.clear()
        arguments = *self.own_arguments(), *options(self.settings), *self._arguments
        process = start(
            [*self.prefix, *self.command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**_environment(), **self._environment},
            **self._popen,
        )
        assert process.stderr is not None
        self._process = process
        self._reader = threading.Thread(target=self._collect, args=(process.stderr,), daemon=True)
        self._reader.start()

    def restart(self, **settings: object) -> Self:
        """Start it again, once it has ended, on the same port."""
        port = int(self.url.rpartition(":")[2])
        self.settings = {**self.settings, "port": port, **settings}
        return self.start()

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; returns its exit status."""
        os.kill(self.pid, number)
        return self.wait()

    def kill(self) -> None:
        """End it by SIGKILL, as a crash does."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def freeze(self) -> None:
        """Stop it until SIGCONT; returns once it has stopped."""
        freeze(self.pid)

    def wait(self, seconds: float = DEADLINE_S) -> int:
        """Wait until it has ended; returns its exit status."""
        assert self._process is not None
        assert self._reader is not None
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} s\n{self.stderr}") from None
        self._reader.join()
        return status

    def close(self) -> None:
        if self._process is not None:
            if self.exit_status is None:
                os.kill(self._process.pid, signal.SIGKILL)
            self.wait()

    def end(self) -> None:
        """End it if it runs. Fails if it has logged what no process may."""
        self.close()
        assert not self.logged_problems, self.stderr

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Start it, and end it with the context."""
        try:
            yield self.start()
        finally:
            self.end()

    # -- properties -------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    # -- output -----------------------------------------------------------------------------------

    @property
    def stderr(self) -> str:
        """Return its output since the newest start."""
        with self._said:
            return "\n".join(self._lines)

    @property
    def logged_problems(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if any(sign in line for sign in _WENT_WRONG)]

    def wait_for(self, text: str, seconds: float = DEADLINE_S) -> str:
        deadline = time.monotonic() + seconds
        with self._said:
            while True:
                for line in self._lines:
                    if text in line:
                        return line
                left = deadline - time.monotonic()
                ended = self._lines[-1:] == [_END]
                if left <= 0 or ended:
                    raise AssertionError(f"it does not say {text!r}:\n" + "\n".join(self._lines))
                self._said.wait(left)

    def _collect(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._say(line.rstrip("\n"))
        self._say(_END)

    def _say(self, line: str) -> None:
        with self._said:
            self._lines.append(line)
            self._said.notify_all()

    def own_arguments(self) -> tuple[str, ...]:
        """Return arguments that follow from the kind of the daemon."""
        return ()


def options(settings: Mapping[str, object]) -> list[str]:
    given: list[str] = []
    for key, value in settings.items():
        name = key.replace("_", "-")
        match value:
            case True:
                given.append(f"--{name}")
            case False:
                given.append(f"--no-{name}")
            case _:
                given += [f"--{name}", str(value)]
    return given


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("QUOTH_")}
