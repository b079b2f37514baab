"""Limits of the operating system on a process that runs: true short writes, and descriptors that run out."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

needs_prlimit = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="this system cannot limit a process that runs (prlimit)"
)


@contextmanager
def file_bytes(pid: int, size: int) -> Iterator[None]:
    """No file of a process grows above a size: a write up to there is short, one from there on is EFBIG."""
    with _limited(pid, resource.RLIMIT_FSIZE, size):
        yield


@contextmanager
def descriptors_left(pid: int, count: int) -> Iterator[None]:
    """A process can open so many more files, then it is EMFILE."""
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
