"""What the operating system says about a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_PROC = Path("/proc")

needs_proc = pytest.mark.skipif(
    not (_PROC / "self" / "fd").is_dir(), reason="this system has no /proc to count descriptors and threads"
)


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
