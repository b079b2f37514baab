"""Processes of tests: forked ones are like executed ones, none outlives its test, all hear interrupts."""

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
from kit.machine.commands import COMMAND_S
from kit.machine.processes import runs
from kit.machine.screens import Terminal
from kit.scale import LONG

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
STARTING = """
import sys
from pathlib import Path
from kit.broker.brokers import BrokerProcess

broker = BrokerProcess(Path(sys.argv[1])).start()
if sys.argv[2] == "frozen":
    broker.freeze()
print(broker.pid, flush=True)
sys.stdin.read()
"""
INTERRUPTED = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

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
def test_forked_process_is_stopped_waited_for_and_on_a_terminal_as_usual(start: Callable[..., Any]) -> None:
    process = start([*forkserver.PYTHON, "import time; time.sleep(600)"])
    assert process.poll() is None
    os.kill(process.pid, signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    assert not runs(process.pid)
    process = start([*forkserver.PYTHON, "import warnings; warnings.warn('one')"], stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err.splitlines()[-1]) == (1, b"UserWarning: one")
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
    out = subprocess.run([*forkserver.PYTHON, code], capture_output=True, env=ENVIRONMENT).stdout
    eventually(lambda: not runs(int(out)), "the server has ended")


def test_command_that_cannot_be_forked_is_executed() -> None:
    command = [*forkserver.PYTHON, ""]
    process = forkserver.start(command)
    assert process.wait(DEADLINE_S) == 0
    assert LONG or type(process) is forkserver.Forked
    for popen in ({"env": {**os.environ, "PYTHONHASHSEED": "1"}}, {"preexec_fn": lambda: None}):
        process = forkserver.start(command, **popen)
        assert type(process) is subprocess.Popen
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("state", ["running", "frozen"])
def test_brokers_end_with_a_killed_test_process(tmp_path: Path, state: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTING, str(tmp_path), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as starting:
        assert starting.stdout is not None
        broker = int(starting.stdout.readline())
        assert runs(broker)
        starting.kill()
        starting.wait(DEADLINE_S)
    eventually(lambda: not runs(broker), "the broker has ended")


def test_process_of_a_test_ends_by_an_interrupt() -> None:
    process = subprocess.run([sys.executable, "-c", INTERRUPTED], timeout=COMMAND_S, capture_output=True)
    assert process.returncode == -signal.SIGINT


def test_process_of_a_test_in_a_background_script_ends_by_an_interrupt(tmp_path: Path) -> None:
    """A shell starts background processes with SIGINT ignored.

    In the common temporary folder pytest would remove what earlier runs have left there, for minutes.
    """
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider",
            "--basetemp", str(tmp_path / "own"),
            f"{__file__}::{test_process_of_a_test_ends_by_an_interrupt.__name__}",
        ],
        cwd=Path(__file__).parents[3],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True, text=True, timeout=COMMAND_S,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done


def test_a_program_that_hangs_on_a_terminal_prints_where_its_threads_are() -> None:
    code = "print('begun', flush=True); import time; time.sleep(600)"
    terminal = Terminal("/bin/sh", "-c", f'{sys.executable} -X faulthandler -c "{code}"; :')
    assert terminal.read_until(lambda seen: "begun" in seen)
    with pytest.raises(AssertionError, match=r'Fatal Python error: Aborted(.*\n)+ +File "<string>", line 1'):
        terminal.read_until(lambda _: False, 0.01)
    terminal.end()
