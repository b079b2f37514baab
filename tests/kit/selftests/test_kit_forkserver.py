"""A forked process has everything that an executed one has."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.deadlines import DEADLINE_S, eventually
from kit.machine import forkserver
from kit.machine.processes import runs

REPORT = """
import json, os, signal, sys, threading, time, warnings
streams = [(one.encoding, one.errors, one.line_buffering, one.write_through, one.isatty()) for one in
           (sys.stdin, sys.stdout, sys.stderr)]
print(json.dumps({
    "arguments": sys.argv, "directory": os.getcwd(), "environment": dict(os.environ), "path": sys.path[0],
    "parent": os.getppid(), "group": os.getpgrp(), "descriptors": len(os.listdir("/proc/self/fd")),
    "signals": [str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "threads": threading.active_count(), "zone": time.tzname, "warnings": sys.warnoptions,
    "streams": streams, "input": sys.stdin.read(),
}))
sys.exit(7)
"""
IS_TERMINAL = "import sys; print(sys.stdin.isatty(), sys.stdout.isatty())"
START: list[Callable[..., Any]] = [forkserver.start, subprocess.Popen]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


def report_of(start: Callable[..., Any], directory: Path) -> dict[str, Any]:
    """Return the surroundings of a process that is started in this way."""
    environment = {**os.environ, "TZ": "Asia/Tokyo", "OF_THE_TEST": "ä"}
    process = start(
        [*forkserver.PYTHON, REPORT, "one", "two words"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=directory,
    )
    out, _ = process.communicate(b"what it reads\n", timeout=DEADLINE_S)
    assert process.returncode == 7
    found: dict[str, Any] = json.loads(out)
    return found


def test_forked_process_has_the_surroundings_of_an_executed_one(tmp_path: Path) -> None:
    forked, executed = (report_of(start, tmp_path) for start in START)
    assert forked == executed
    assert forked["parent"] == os.getpid()


@pytest.mark.parametrize("start", START)
def test_forked_process_is_stopped_and_waited_for_as_usual(start: Callable[..., Any]) -> None:
    process = start([*forkserver.PYTHON, "import time; time.sleep(600)"])
    assert process.poll() is None
    os.kill(process.pid, signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    assert not runs(process.pid)


@pytest.mark.parametrize("start", START)
def test_error_ends_the_process_and_is_printed(start: Callable[..., Any]) -> None:
    process = start([*forkserver.PYTHON, "import warnings; warnings.warn('one')"], stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err.splitlines()[-1]) == (1, b"UserWarning: one")


@pytest.mark.parametrize("start", START)
def test_stream_of_a_terminal_is_a_terminal(start: Callable[..., Any]) -> None:
    ours, theirs = pty.openpty()
    process = start([*forkserver.PYTHON, IS_TERMINAL], stdin=theirs, stdout=theirs)
    os.close(theirs)
    with open(ours, "rb", 0) as screen:
        assert screen.readline() == b"True True\r\n"
    assert process.wait(DEADLINE_S) == 0


def test_server_ends_with_the_process_that_uses_it() -> None:
    code = (
        "import os, sys; from kit.machine import forkserver;"
        "forkserver.start([*forkserver.PYTHON, '']).wait();"
        "print(forkserver.server().pid, flush=True); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    out = subprocess.run([*forkserver.PYTHON, code], capture_output=True, env=environment).stdout
    eventually(lambda: not runs(int(out)), "the server has ended")


def test_command_that_cannot_be_forked_is_executed() -> None:
    command = [*forkserver.PYTHON, ""]
    process = forkserver.start(command)
    assert type(process) is forkserver.Forked
    assert process.wait(DEADLINE_S) == 0
    for popen in ({"env": {**os.environ, "PYTHONHASHSEED": "1"}}, {"preexec_fn": lambda: None}):
        process = forkserver.start(command, **popen)
        assert type(process) is subprocess.Popen
        assert process.wait(DEADLINE_S) == 0
