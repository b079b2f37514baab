"""A memory cgroup of its own for a broker, whose end by the kernel's OOM killer is as real as by kill -9.

Both versions of Linux's control groups serve. Where none can be made, the tests that need one are skipped.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import HasUrl
from kit.deadlines import eventually
from kit.zmtp import handshaken

ROOT = Path("/sys/fs/cgroup")
MARGIN_BYTES = 64 * 2**20
"""Until the flood of a connection ends the broker: a million frames, sent within a second."""
PARTS = b"\x01\x01x" * 100_000
"""Frames of a message of ZMTP, each of a byte, with the flag that another one follows."""
_numbers = count()


class MemoryGroup:
    """A control group with a limit of memory; its processes are killed with it.

    prefix: of the command of a broker, which makes the broker a member of the group.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_second = (path / "memory.max").exists()
        join = f'echo $$ > {path}/cgroup.procs && exec "$@"'
        self.prefix = ("sh", "-c", join, "sh")

    @property
    def kills(self) -> int:
        """The number of processes that the kernel has killed here for want of memory."""
        lines = (self._path / ("memory.events" if self._is_second else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in lines.splitlines())["oom_kill"])

    def take(self, pid: int) -> None:
        """Make a process a member. What it has allocated before does not count."""
        (self._path / "cgroup.procs").write_text(str(pid))

    @contextmanager
    def limit(self, size: int) -> Iterator[None]:
        """Limit the memory to so many bytes."""
        self._limit(str(size))
        try:
            yield
        finally:
            self._limit("max" if self._is_second else "-1")

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit the memory to little more than what is used. The kernel has to kill a process meanwhile."""
        before = self.kills
        usage = "memory.current" if self._is_second else "memory.usage_in_bytes"
        with self.limit(int((self._path / usage).read_text()) + MARGIN_BYTES):
            yield
        assert self.kills > before

    def exhaust(self, broker: BrokerProcess) -> None:
        """Let a client send a message without end until the broker is killed for want of memory."""
        with self.limited():
            try:
                flood(broker)
            except OSError as problem:
                raise AssertionError(f"status {broker.exit_status}: {broker.stderr}") from problem
            assert broker.wait() == -signal.SIGKILL

    def close(self) -> None:
        """Kill what is left in it, and remove it."""
        for pid in (self._path / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        eventually(self._remove, "the control group is empty")

    def _limit(self, size: str) -> None:
        name = "memory.max" if self._is_second else "memory.limit_in_bytes"
        (self._path / name).write_text(size)

    def _remove(self) -> bool:
        try:
            self._path.rmdir()
        except OSError as problem:
            if problem.errno != errno.EBUSY:
                raise
            return False
        return True


def flood(broker: HasUrl) -> None:
    """Send a message that does not end until the connection does."""
    with handshaken(broker) as connection, suppress(ConnectionError):
        while True:
            connection.sendall(PARTS)


@contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """Make a group. Raises OSError where that is not possible."""
    first = ROOT / "memory"
    above = first if first.is_dir() else ROOT
    path = above / f"quoth-test-{os.getpid()}-{next(_numbers)}"
    path.mkdir()
    if not any((path / name).exists() for name in ("memory.max", "memory.limit_in_bytes")):
        path.rmdir()
        raise OSError(errno.ENOTSUP, "the controller of memory is not enabled", str(above))
    group = MemoryGroup(path)
    try:
        yield group
    finally:
        group.close()


def _problem() -> str:
    """Return why no group can be made here; empty if one can."""
    try:
        with memory_group():
            return ""
    except OSError as problem:
        return f"no memory cgroup can be made here: {problem}"


needs_memory_group = pytest.mark.skipif(bool(_reason := _problem()), reason=_reason or "a group can be made")
