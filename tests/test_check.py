"""The script that runs all checks, `tools/check`, on a terminal."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kit.deadlines import DEADLINE_S, eventually

ROOT = Path(__file__).parents[1]
INNER = "TESTS_TO_INTERRUPT"
"""The variable that defines the tests which this module interrupts."""
SOON_S = 20.0

if INNER in os.environ:

    def test_fails() -> None:
        raise AssertionError("failed before Ctrl-C")

    @pytest.mark.parametrize("worker", range(2))
    def test_hangs(worker: int) -> None:
        time.sleep(600)


class Terminal:
    """A program on a terminal of its own, which sends Ctrl-C to all of its processes."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.seen = ""
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execve(command[0], command, {**os.environ, **environment})

    def read_until(self, is_there: Callable[[str], bool], seconds: float) -> bool:
        """Read until that is true of all that was seen; false if the program ends before."""
        until = time.monotonic() + seconds
        while not is_there(self.seen):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, until - time.monotonic()))
            assert ready, self.seen
            try:
                self.seen += os.read(self._terminal, 65_536).decode()
            except OSError:  # Linux reports the end of the last writer so
                return False
        return True

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._terminal, b"\x03")

    def end(self) -> int:
        """Wait for the end; returns the exit status."""
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it needs a pseudo-terminal of Linux")


def test_ctrl_c_ends_the_checks_soon_with_the_failures_so_far() -> None:
    """The next stage does not begin."""
    arguments = "tests/test_check.py", "-n", "2", "-p", "no:cacheprovider", "-k", "test_fails or test_hangs"
    terminal = Terminal(
        str(ROOT / "tools/check"), *arguments, **{INNER: "yes", "STAGES": "tests spark", "NO_COLOR": "1"}
    )
    assert terminal.read_until(lambda seen: "F" in seen.partition(" items]")[2], 3 * DEADLINE_S)
    terminal.interrupt()
    assert not terminal.read_until(lambda _: False, SOON_S)
    assert terminal.end() == 130
    assert "failed before Ctrl-C" in terminal.seen
    assert "tests   interrupted in" in terminal.seen
    assert "=== spark" not in terminal.seen


def test_ctrl_c_ends_stages_beside_the_others(tmp_path: Path) -> None:
    """Without a cache the types take far longer."""
    beside = {"STAGES": "lint types", "MYPY_CACHE_DIR": str(tmp_path), "NO_COLOR": "1"}
    terminal = Terminal(str(ROOT / "tools/check"), **beside)
    assert terminal.read_until(lambda seen: "All checks passed!" in seen, DEADLINE_S)
    eventually(lambda: processes_with(tmp_path), "the types are checked")
    terminal.interrupt()
    assert not terminal.read_until(lambda _: False, SOON_S)
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
