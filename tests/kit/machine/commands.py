"""The command `quoth`, in this process or in one of its own, and other programs of tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple
from unittest import mock

from kit.deadlines import DEADLINE_S
from kit.machine.forkserver import start
from kit.machine.processes import python_of
from kit.scale import LONG
from quothcli.application import run
from quothcli.cli import session
from quothcli.groups import consuming

COMMAND = python_of("quothcli.main")
COMMAND_S = 60.0
"""The time for a whole command, on a busy machine."""
PATIENT_DOCTOR = "from quothcli.commands.doctor import broker; broker.ANSWER_S = 20.0"
"""A prelude: a busy machine may need longer to answer `quoth doctor` than a person waits for that."""
_ALONE = {"serve", "service", "demo", "bench"}
"""Commands that change their process."""
_FOLLOWING = {"tail", "consume"}
"""Commands that say what they wait for, after a moment that is over early on a busy machine."""
_SILENT = f"""\
from quothcli.cli import session; session.FIRST_S = {DEADLINE_S}
from quothcli.groups import consuming; consuming.CLOSING_S = {DEADLINE_S}"""
"""A prelude: they say so only when a test has failed."""
_WENT_WRONG = ("Traceback", "Exception ignored", "Fatal Python error", "Warning")


def after(prelude: str) -> tuple[str, ...]:
    """Return the command with code that its process executes first."""
    return *COMMAND[:-1], f"{prelude}\n{COMMAND[-1]}" if prelude else COMMAND[-1]


class Ended(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    def refused(self, status: int) -> tuple[str, str]:
        """Check that it printed nothing and failed in two lines; returns what happened and what to do."""
        assert (self.status, self.out) == (status, b""), self
        happened, advice = self.err.splitlines()
        assert happened.startswith("quoth: ")
        assert advice.startswith("hint: ")
        return happened, advice

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def quothd(*arguments: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> Ended:
    command = [*python_of("quothd.main"), *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(command, env={**os.environ, **(environment or {})}, cwd=cwd, **streams) as process:
        out, err = process.communicate(timeout=COMMAND_S)
    return Ended(process.returncode, out, err.decode())


class Running:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip("\n")

    def error_line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode().rstrip("\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_output(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.stdout = None

    def wait_until_stopped(self) -> None:
        """Wait until SIGSTOP has stopped the process."""
        found = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert found is not None
        assert found.si_code == os.CLD_STOPPED, "it has ended"

    def end(self, number: int | None = None) -> Ended:
        """Send a signal, if one is given, and wait for the end of the process."""
        if number is not None:
            os.kill(self.process.pid, number)
        out, err = self.process.communicate(timeout=COMMAND_S)
        ended = Ended(self.process.returncode, out or b"", (err or b"").decode())
        assert not any(sign in ended.err for sign in _WENT_WRONG), ended.err
        return ended


class Command:
    """The command `quoth`, for one broker or for none.

    prelude: code that its process executes first. says_waits: it says what it waits for as soon as for a
    person.
    """

    def __init__(
        self, url: str, running: list[Running], prelude: str = "", *, says_waits: bool = False
    ) -> None:
        self.url = url
        self._running = running
        self._prelude = prelude
        self._says_waits = says_waits

    def prepared(self, prelude: str) -> Command:
        """Return the same command with code that its process executes first."""
        return Command(self.url, self._running, prelude, says_waits=self._says_waits)

    def that_says_waits(self) -> Command:
        """Return the same command, which says what it waits for as soon as for a person."""
        return Command(self.url, self._running, self._prelude, says_waits=True)

    def __call__(
        self,
        *arguments: str,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Ended:
        """Run the command to its end: in this process, unless it is limited to some seconds or a long run."""
        own_process = LONG or seconds or self._prelude or self._says_waits
        if own_process or _ALONE.intersection(arguments):
            process = self.start(*arguments, environment=environment, stdin=subprocess.PIPE).process
            out, err = process.communicate(stdin, timeout=seconds or COMMAND_S)
            ended = Ended(process.returncode, out, err.decode())
        else:
            ended = _in_this_process(arguments, stdin, self._environment(environment))
        assert not any(sign in ended.err for sign in _WENT_WRONG), ended.err
        return ended

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None, **popen: Any) -> Running:
        """Start the command. The end of the test kills it if it still runs."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        silent = "" if self._says_waits or _FOLLOWING.isdisjoint(arguments) else _SILENT
        command = [*after("\n".join(filter(None, (silent, self._prelude)))), *arguments]
        process = start(command, env=self._environment(environment), **{**streams, **popen})
        self._running.append(Running(process))
        return self._running[-1]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("QUOTH_")}
        return {**kept, **({"QUOTH_URL": self.url} if self.url else {}), **(more or {})}


def _in_this_process(arguments: Sequence[str], stdin: bytes, environment: Mapping[str, str]) -> Ended:
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(session, "FIRST_S", DEADLINE_S),
        mock.patch.object(consuming, "CLOSING_S", DEADLINE_S),
        _streams(stdin) as (out, err),
    ):
        status = run(arguments)
        return Ended(status, _content(out), _content(err).decode())


@contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[int, int]]:
    """Replace the standard streams of this process; yields the files of stdout and stderr."""
    with ExitStack() as stack:
        reading, writing = os.pipe()
        writer = threading.Thread(target=_write, args=(writing, stdin))
        writer.start()
        stack.callback(writer.join)
        out, err = (stack.enter_context(TemporaryFile()).fileno() for _ in range(2))
        for number, (fd, name) in enumerate(((reading, "stdin"), (out, "stdout"), (err, "stderr"))):
            kept = os.dup(number)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, number)
            os.dup2(fd, number)
            stream = stack.enter_context(open(number, "w" if number else "r", closefd=False))
            stack.enter_context(mock.patch.object(sys, name, stream))
        os.close(reading)
        yield out, err


def _write(fd: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def run_script(
    script: str, *arguments: str, options: Sequence[str] = ("-W", "error")
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
