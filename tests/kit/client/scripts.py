"""Programs of tests that use a client in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from kit.machine.commands import COMMAND_S


def run_script(
    script: str, *arguments: str, options: Sequence[str] = ("-W", "error")
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, *options, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
