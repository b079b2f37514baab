"""strace on a real process: records its calls to the file system, and makes calls fail, wait or kill it.

strace counts the calls of each thread apart: a fault at the second fdatasync affects the second one of every
thread.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from kit.deadlines import DEADLINE_S

CHANGES = ("writev", "pwrite64", "fdatasync", "fsync", "rename", "ftruncate", "unlink", "unlinkat", "mkdir")
"""The calls by which a broker changes the disk, or makes changes durable."""
CALLS = (*CHANGES, "openat", "pread64")
"""All calls that are recorded."""

_LINE = re.compile(r"\d+ +(?P<name>\w+)\((?P<rest>.*)")
_PATH = re.compile(r'<(/[^>]*)>|"(/[^"]*)"')


class Call(NamedTuple):
    """One call. number: its place among all. path: of its file, the new one if it is renamed."""

    number: int
    name: str
    path: str


class Fault(NamedTuple):
    """A fault of the n-th call of a name, and with `lasting` of all later ones, in every thread.

    what: as strace writes it: "error=EIO", "signal=SIGKILL" (before the call), "delay_enter=" with
    microseconds. path: count only calls to this file or directory, renames included; empty: count all.
    """

    name: str
    nth: int
    what: str
    path: str = ""
    lasting: bool = False

    @property
    def option(self) -> str:
        return f"inject={self.name}:{self.what}:when={self.nth}{'+' if self.lasting else ''}"


def traced(output: Path, fault: Fault | None = None) -> tuple[str, ...]:
    """Return the words in front of a command that trace it from its first call on, as the same process.

    Without --seccomp-bpf, which would be faster, but then injected signals never arrive.
    """
    return "strace", "-D", "-qq", *_options(output, fault)


class Tracer:
    """strace, attached to a running process during a block. The process goes on afterwards."""

    def __init__(self, pid: int, output: Path, fault: Fault | None = None) -> None:
        self._pid = pid
        self._output = output
        self._fault = fault

    def __enter__(self) -> Self:
        self._strace = subprocess.Popen(
            ["strace", "-p", str(self._pid), *_options(self._output, self._fault)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._strace.stderr is not None
        first = self._strace.stderr.readline()  # after it has attached to every thread
        if "attached" not in first:
            self.stop()
            raise AssertionError(f"strace does not attach: {first}")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Detach from the process. Delayed calls go on, too."""
        if self._strace.poll() is None:
            self._strace.send_signal(signal.SIGINT)
        try:
            self._strace.communicate(timeout=DEADLINE_S)
        finally:
            self._strace.kill()


def calls_in(output: Path) -> list[Call]:
    """Return the calls in the output of strace, in the order in which they began."""
    calls: list[Call] = []
    for line in output.read_text(errors="replace").splitlines():
        if found := _LINE.match(line):
            rest = found["rest"]
            paths = [at_fd or named for at_fd, named in _PATH.findall(rest)] or [""]
            calls.append(Call(len(calls), found["name"], paths[0 if rest[0].isdigit() else -1]))
    return calls


def _options(output: Path, fault: Fault | None) -> list[str]:
    options = ["-f", "-y", "-o", str(output), "-e", f"trace={','.join(CALLS)}"]
    if fault is not None:
        assert fault.name in CALLS, "strace injects faults only into traced calls"
        options += ["-e", fault.option, *(["-P", fault.path] if fault.path else [])]
    return options


def _missing() -> str:
    """Return the reason for which no process can be traced here; empty if there is none."""
    if shutil.which("strace") is None:
        return "this system has no strace"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as probe:
        try:
            with Tracer(probe.pid, Path("/dev/null")):
                return ""
        except AssertionError as problem:
            return str(problem).strip()


_MISSING = _missing()
needs_strace = pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "strace is here")
