"""Limits of the operating system on a running process: real short writes, and no more descriptors."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

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
