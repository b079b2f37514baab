"""Processes of tests get the signals that they would get in the foreground."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.machine.commands import COMMAND_S

INTERRUPTED = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def test_process_of_a_test_ends_by_an_interrupt() -> None:
    process = subprocess.run([sys.executable, "-c", INTERRUPTED], timeout=COMMAND_S, capture_output=True)
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("workers", ["0", "1"])
def test_process_of_a_test_in_a_background_script_ends_by_an_interrupt(workers: str) -> None:
    """A shell starts background processes with SIGINT ignored; tried with workers of xdist, and without."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider",
            f"{__file__}::{test_process_of_a_test_ends_by_an_interrupt.__name__}",
        ],
        cwd=Path(__file__).parents[3],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True, text=True, timeout=COMMAND_S,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout
