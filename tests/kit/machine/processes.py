"""Processes of ours: started so that none outlives its test, and what the operating system says of them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

_PROC = Path("/proc")
_SETSIG = 10
_HELD = os.pipe()
"""Both ends stay open as long as this process lives."""
_DIE_WITH_US = f"""\
import fcntl, os
held = os.open("/proc/{os.getpid()}/fd/{_HELD[0]}", os.O_RDONLY | os.O_NONBLOCK)
fcntl.fcntl(held, {_SETSIG}, {int(signal.SIGKILL)})
fcntl.fcntl(held, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(held, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
"""
"""Said by the child itself once it runs: when nobody writes to the pipe any more, the system kills it."""

needs_proc = pytest.mark.skipif(
    not (_PROC / "self" / "fd").is_dir(), reason="this system has no /proc to count descriptors and threads"
)


def hear_interrupts() -> None:
    """Let SIGINT have its usual effect here and in all processes that are started from here.

    A script that starts something in the background has it ignored there, and so have many CI; what a process
    ignores, those ignore that it starts.
    """
    is_main = threading.current_thread() is threading.main_thread()  # only there it may be set
    if is_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def python_of(module: str) -> tuple[str, ...]:
    """The command that calls a module's `main`, with warnings as errors.

    On Linux it is killed when this process ends, even if that is by SIGKILL.
    """
    code = f"{_DIE_WITH_US if sys.platform == 'linux' else ''}from {module} import main; main()"
    return sys.executable, "-W", "error", "-c", code


def descriptors(pid: int) -> int:
    """Open file descriptors of a process."""
    return len(os.listdir(_PROC / str(pid) / "fd"))


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    return [other for other in map(int, filter(str.isdigit, os.listdir(_PROC))) if _parent(other) == pid]


def runs(pid: int) -> bool:
    """Is there such a process, not counting one that has ended and that nobody has asked for yet?"""
    return _parent(pid) is not None


def _parent(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return None if state == "Z" else int(parent)


def threads(pid: int) -> int:
    """Threads of a process."""
    return len(os.listdir(_PROC / str(pid) / "task"))


def resident_bytes(pid: int) -> int:
    """Memory that a process has in use."""
    pages = (_PROC / str(pid) / "statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes(pid: int) -> int:
    """The most memory that a process ever had in use."""
    line = next(one for one in (_PROC / str(pid) / "status").read_text().splitlines() if "VmHWM" in one)
    return int(line.split()[1]) * 1_024


def peak_of(act: Callable[[], object]) -> int:
    """Bytes that Python's objects take at most, beyond those before, while something is done here."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def listing(directory: Path) -> list[str]:
    """Every file and directory below a directory, links included."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))
