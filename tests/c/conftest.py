"""The example in C, built once for all tests of a run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kit.machine.cprograms import can_sanitize, copied, make


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example; with sanitizers, if this machine has them. Other workers wait for the first one."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "c.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = shared / "c-examples"
        if not folder.exists():
            copied(folder)
        is_sanitized = can_sanitize()
        make(folder, *(["sanitize"] if is_sanitized else []))
    return folder / ("quothpipe-sanitized" if is_sanitized else "quothpipe")
