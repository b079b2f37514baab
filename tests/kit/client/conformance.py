"""The player of the conformance kit, with the driver of a client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kit.machine.commands import COMMAND_S

TESTS = Path(__file__).resolve().parents[2]
PLAYER = TESTS / "vectors" / "play.py"
PYTHON_DRIVER = TESTS / "quoth" / "conformance" / "driver.py"


class Played(NamedTuple):
    """The outcome of sessions. lines: one a session, without the summary, with the reason behind a colon."""

    status: int
    lines: list[str]

    def of(self, outcome: str) -> set[str]:
        """Return the names of the sessions that ended so, with the reasons."""
        return {line.removeprefix(outcome).strip() for line in self.lines if line.startswith(outcome)}

    def hold(self) -> None:
        """Check that no session failed."""
        assert (self.status, self.of("FAIL")) == (0, set()), "\n".join(self.lines)
        assert self.of("PASS")


def play(driver: Sequence[str], *options: str) -> Played:
    """Play the sessions with a driver. options: of the player, see tests/vectors/README.md."""
    command = [sys.executable, "-W", "error", str(PLAYER), "--verbose", *options, "--", *driver]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMMAND_S, env=os.environ, check=False
    )
    *lines, summary = done.stdout.splitlines() or [""]
    assert summary.endswith(" s"), done.stdout + done.stderr
    return Played(done.returncode, lines)


def python_driver(*arguments: str) -> list[str]:
    """Return the command of the driver of the Python clients."""
    return [sys.executable, "-W", "error", str(PYTHON_DRIVER), *arguments]
