"""Starts processes so that none outlives its test, reads their figures and sets their limits."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import struct
import sys
import termios
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kit.machine.forkserver import PYTHON

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
"""Executed by the child: the system kills it when no process has the writing end of the pipe any more."""

needs_proc = pytest.mark.skipif(
    not (_PROC / "self" / "fd").is_dir(), reason="this system has no /proc to count descriptors and threads"
)


def hear_interrupts() -> None:
    """Give SIGINT its usual effect in this process and in all that it starts.

    Scripts and many CIs start background processes with SIGINT ignored, and children inherit that.
    """
    is_main = threading.current_thread() is threading.main_thread()  # only there it may be set
    if is_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def python_of(module: str) -> tuple[str, ...]:
    """Return the command that calls a module's `main`, with warnings as errors.

    On Linux its process is killed when this one ends, even by SIGKILL.
    """
    return _python(f"from {module} import main; main()")


def _python(code: str) -> tuple[str, ...]:
    return *PYTHON, f"{_DIE_WITH_US if sys.platform == 'linux' else ''}{code}"


@contextmanager
def shared(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """Yield a path that all workers of a run have in common, to one of them after the other."""
    base = factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with path.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


def descriptors(pid: int) -> int:
    return len(os.listdir(_PROC / str(pid) / "fd"))


def open_files(directory: Path) -> list[str]:
    """Return the files of a folder that this process has open, removed ones too.

    Other descriptors of the process are left out: connections of earlier tests come and go.
    """
    found = []
    for descriptor in (_PROC / "self" / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed by another thread
            found.append(os.readlink(descriptor))
    return sorted(path for path in found if path.startswith(f"{directory.resolve()}/"))


def children(pid: int) -> list[int]:
    return [other for other in map(int, filter(str.isdigit, os.listdir(_PROC))) if _parent(other) == pid]


def runs(pid: int) -> bool:
    """True if there is such a process, and it is no zombie."""
    return _parent(pid) is not None


def _parent(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return None if state == "Z" else int(parent)


def in_child(act: Callable[[], object]) -> str:
    """Run an act in a forked child; returns its outcome as a text."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, repr(act()).encode())
        except BaseException as problem:
            os.write(writer, str(problem).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def drop_capabilities() -> None:
    """Let root of this process respect the permissions of its files, for good."""
    version = 0x2008_0522  # of Linux 2.6.26
    if ctypes.CDLL(None).capset(struct.pack("=2I", version, 0), bytes(24)):
        raise OSError("the capabilities cannot be dropped")


def freeze(pid: int) -> None:
    """Stop a child until SIGCONT; returns once it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), "it has ended"


@contextmanager
def thawed(pid: int) -> Iterator[None]:
    """Let a frozen child run during the block."""
    os.kill(pid, signal.SIGCONT)
    try:
        yield
    finally:
        freeze(pid)


def threads(pid: int) -> int:
    return len(os.listdir(_PROC / str(pid) / "task"))


def resident_bytes(pid: int) -> int:
    pages = (_PROC / str(pid) / "statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def page_faults(pid: int) -> int:
    """Count the page faults so far that needed no disk."""
    return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[7])


def unread(pipe: int) -> int:
    """Count the bytes that wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def drained(fd: int) -> bytes:
    """Read all bytes of a pipe."""
    os.set_blocking(fd, False)
    parts = []
    try:
        while part := os.read(fd, 2**20):
            parts.append(part)
    except BlockingIOError:
        pass
    return b"".join(parts)


def peak_of(act: Callable[[], object]) -> int:
    """Return the peak of the bytes that a call allocates for Python objects."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def listing(directory: Path) -> list[str]:
    """List all files and directories below a directory, links included."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


needs_prlimit = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="this system cannot limit a running process (prlimit)"
)


@contextmanager
def file_bytes(pid: int, size: int) -> Iterator[None]:
    """Limit the files of a process: a write up to the size is short, one behind it fails with EFBIG."""
    with _limited(pid, resource.RLIMIT_FSIZE, size):
        yield


@contextmanager
def descriptors_left(pid: int, count: int) -> Iterator[None]:
    """Let a process open so many more files; the next one fails with EMFILE."""
    taken = {int(name) for name in os.listdir(Path("/proc") / str(pid) / "fd")}
    free = [number for number in range(len(taken) + count + 1) if number not in taken]
    with _limited(pid, resource.RLIMIT_NOFILE, free[count]):
        yield


@contextmanager
def _limited(pid: int, limit: int, soft: int) -> Iterator[None]:
    before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (soft, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have died
            resource.prlimit(pid, limit, before)
