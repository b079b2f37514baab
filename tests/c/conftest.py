"""The example in C, built once for all its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.machine.cprograms import can_sanitize, copied, make


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's sources, in a folder of their own."""
    return copied(tmp_path_factory.mktemp("c") / "examples")


@pytest.fixture(scope="session")
def program(folder: Path) -> Path:
    """The example; with sanitizers, if this machine has them."""
    if can_sanitize():
        make(folder, "sanitize")
        return folder / "quothpipe-sanitized"
    make(folder)
    return folder / "quothpipe"
