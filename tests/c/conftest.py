"""The example in C, built once for all tests of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.machine.cprograms import can_sanitize, copied, make
from kit.machine.processes import shared


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example; with sanitizers, if this machine has them. Other workers wait for the first one."""
    with shared(tmp_path_factory, "c-examples") as folder:
        if not folder.exists():
            copied(folder)
        is_sanitized = can_sanitize()
        make(folder, *(["sanitize"] if is_sanitized else []))
    return folder / ("quothpipe-sanitized" if is_sanitized else "quothpipe")
