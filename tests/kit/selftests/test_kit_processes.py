"""Processes that tests start: they hear what they would hear in the foreground."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.machine.commands import COMMAND_S

INTERRUPTED = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def test_a_process_that_a_test_starts_is_ended_by_an_interrupt() -> None:
    process = subprocess.run([sys.executable, "-c", INTERRUPTED], timeout=COMMAND_S, capture_output=True)
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("workers", ["0", "1"])
def test_so_it_is_where_the_tests_run_in_the_background_of_a_script(workers: str) -> None:
    """A shell starts them with SIGINT ignored then; with workers of xdist, and without."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider",
            f"{__file__}::{test_a_process_that_a_test_starts_is_ended_by_an_interrupt.__name__}",
        ],
        cwd=Path(__file__).parents[3],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True, text=True, timeout=COMMAND_S,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout
