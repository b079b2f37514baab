"""Processes of ours: started so that none outlives its test, and what the operating system says of them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

_PROC = Path("/proc")
_SET_PDEATHSIG = 1
_DIE_WITH_PARENT = (
    f"import ctypes; ctypes.CDLL(None).prctl({_SET_PDEATHSIG}, {int(signal.SIGKILL)})\n"
    if sys.platform == "linux"
    else ""
)
"""Said by the child itself once it runs: nothing happens between fork and exec, where threads do harm."""

needs_proc = pytest.mark.skipif(
    not (_PROC / "self" / "fd").is_dir(), reason="this system has no /proc to count descriptors and threads"
)


def python_of(module: str) -> tuple[str, ...]:
    """The command that calls a module's `main`, with warnings as errors.

    On Linux it is killed when the thread that starts it ends, even if that is by SIGKILL.
    """
    code = f"{_DIE_WITH_PARENT}from {module} import main; main()"
    return sys.executable, "-W", "error", "-c", code


def descriptors(pid: int) -> int:
    """Open file descriptors of a process."""
    return len(os.listdir(_PROC / str(pid) / "fd"))


def threads(pid: int) -> int:
    """Threads of a process."""
    return len(os.listdir(_PROC / str(pid) / "task"))


def resident_bytes(pid: int) -> int:
    """Memory that a process has in use."""
    pages = (_PROC / str(pid) / "statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def listing(directory: Path) -> list[str]:
    """Every file and directory below a directory, links included."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))
