"""The script that runs all checks, `tools/check`, on a terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kit.deadlines import DEADLINE_S, eventually
from kit.machine.commands import COMMAND_S
from kit.machine.screens import Terminal

ROOT = Path(__file__).parents[1]
INNER = "TESTS_OF_THE_CHECKS"
"""The variable that defines the tests which this module lets the script run."""

if INNER in os.environ:

    def test_fails() -> None:
        raise AssertionError("failed before Ctrl-C")

    def test_crashes() -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    @pytest.mark.parametrize("worker", range(2))
    def test_hangs(worker: int) -> None:
        time.sleep(600)


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="it needs a pseudo-terminal of Linux"),
    pytest.mark.timeout(4 * COMMAND_S),
]


def test_a_machine_lacks_programs_if_any_of_them_is_missing() -> None:
    """Packages of all of them are installed then."""
    for names, status in ((("sh", "env"), 0), (("sh", "no-such-program"), 1), (("no-such-program", "sh"), 1)):
        typed = ["bash", "-c", '. "$0"; has_programs "$@"', str(ROOT / "tools/environment.sh"), *names]
        assert subprocess.run(typed).returncode == status, names


def test_ctrl_c_ends_the_checks_soon_with_the_failures_so_far() -> None:
    """The next stage does not begin."""
    arguments = "tests/test_check.py", "-n", "2", "-p", "no:cacheprovider", "-k", "test_fails or test_hangs"
    terminal = Terminal(
        str(ROOT / "tools/check"), *arguments, **{INNER: "yes", "STAGES": "tests spark", "NO_COLOR": "1"}
    )
    assert terminal.read_until(lambda seen: "F" in seen.partition(" items]")[2], 3 * DEADLINE_S)
    terminal.type("\x03")
    assert not terminal.read_until(lambda _: False, COMMAND_S)
    assert terminal.end() == 130
    assert "failed before Ctrl-C" in terminal.seen
    assert "tests   interrupted in" in terminal.seen
    assert "=== spark" not in terminal.seen


def test_summary_tells_where_a_worker_has_crashed() -> None:
    arguments = "tests/test_check.py", "-n", "2", "-p", "no:cacheprovider", "-k", "test_crashes or test_fails"
    environment = {**os.environ, INNER: "yes", "STAGES": "tests", "NO_COLOR": "1"}
    checks = subprocess.run(
        [ROOT / "tools/check", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    summary = checks.stdout.partition("=== summary")[2]
    assert checks.returncode == 1
    assert "has ended with status -11" in summary
    assert re.search(r"Fatal Python error: .*\n(.*\n)+ +File .*test_check.py.* in test_crashes\n", summary)


def test_ctrl_c_ends_stages_beside_the_others(tmp_path: Path) -> None:
    """Without a cache the types take far longer."""
    beside = {"STAGES": "lint types", "MYPY_CACHE_DIR": str(tmp_path), "NO_COLOR": "1"}
    terminal = Terminal(str(ROOT / "tools/check"), **beside)
    assert terminal.read_until(lambda seen: "All checks passed!" in seen, 3 * DEADLINE_S)
    eventually(lambda: processes_with(tmp_path), "the types are checked")
    terminal.type("\x03")
    assert not terminal.read_until(lambda _: False, COMMAND_S)
    assert terminal.end() == 130
    assert "lint    passed in" in terminal.seen
    eventually(lambda: not processes_with(tmp_path), "all processes have ended")


def processes_with(value: Path) -> list[Path]:
    """Return the programs of Python below /proc that have a value in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_python = b"python" in (process / "cmdline").read_bytes()
            if is_python and str(value).encode() in (process / "environ").read_bytes():
                found.append(process)
    return found
