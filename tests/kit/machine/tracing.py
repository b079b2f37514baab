"""strace on a real process: records its calls to the file system, and makes calls fail, wait or kill it.

strace counts the calls of each thread apart: a fault at the second fdatasync affects the second one of every
thread. `fault_at` finds the fault that affects a recorded call.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from kit.deadlines import DEADLINE_S

CHANGES = ("writev", "pwrite64", "fdatasync", "fsync", "rename", "ftruncate", "unlink", "unlinkat", "mkdir")
"""The calls by which a broker changes the disk, or makes changes durable."""
CALLS = (*CHANGES, "openat", "pread64")
"""All calls that are recorded."""

_LINE = re.compile(r"(?P<thread>\d+) +(?P<name>\w+)\((?P<rest>.*)")
_RESUMED = re.compile(r"(?P<thread>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)")
_PATH = re.compile(r'<(/[^>]*)>|"(/[^"]*)"')
_UNFINISHED = "<unfinished ...>"


class Call(NamedTuple):
    """One call. number: its place among all. path: of its file; was: the old path of a renamed file."""

    number: int
    thread: int
    name: str
    path: str
    was: str
    text: str

    @property
    def struck(self) -> bool:
        """True if the call failed by an injected fault."""
        return "(INJECTED)" in self.text


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

    @property
    def calls(self) -> list[Call]:
        """The calls so far, in the order in which they began."""
        return calls_in(self._output)


def calls_in(output: Path) -> list[Call]:
    """Return the calls in the output of strace."""
    calls: list[Call] = []
    begun: dict[int, int] = {}
    for line in output.read_text(errors="replace").splitlines():
        if resumed := _RESUMED.match(line):
            at = begun.pop(int(resumed["thread"]))
            calls[at] = calls[at]._replace(text=calls[at].text + resumed["rest"])
        elif whole := _LINE.match(line):
            thread, rest = int(whole["thread"]), whole["rest"]
            if rest.endswith(_UNFINISHED):
                begun[thread] = len(calls)
                rest = rest.removesuffix(_UNFINISHED)
            paths = [at_fd or named for at_fd, named in _PATH.findall(rest)] or [""]
            path = paths[0 if rest[0].isdigit() else -1]
            was = paths[0] if whole["name"] == "rename" else path
            calls.append(Call(len(calls), thread, whole["name"], path, was, rest))
    return calls


def fault_at(calls: Sequence[Call], wanted: Call, what: str, *, same_names: bool = False) -> Fault | None:
    """Return the fault that affects a call first, when all calls are made again in this order.

    same_names: each file will have the same name again, so that calls to other files are not counted. None if
    the fault would always affect a call of another thread before.
    """
    so_far = [call for call in calls[: calls.index(wanted) + 1] if call.name == wanted.name]
    for path in (wanted.was, "") if same_names and wanted.name != "unlinkat" else ("",):
        counted = [call for call in so_far if path in ("", call.was)]
        own = sum(call.thread == wanted.thread for call in counted)
        others = {call.thread for call in counted} - {wanted.thread}
        if all(sum(call.thread == other for call in counted) < own for other in others):
            return Fault(wanted.name, own, what, path)
    return None


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
