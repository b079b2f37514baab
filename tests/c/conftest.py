"""The programs in C, built once for all tests of a run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from kit.machine.commands import COMMAND_S
from kit.machine.cprograms import (
    DRIVER_SOURCES,
    SANITIZERS,
    Drive,
    can_sanitize,
    copied,
    linked,
    make,
    require_compiler,
)
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


@pytest.fixture(scope="session")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    """Gives commands to the driver of the codec, see `driver/driver.c`, and returns its lines."""
    require_compiler()
    with shared(tmp_path_factory, "c-driver") as folder:
        program = folder / "driver"
        if not program.exists():
            folder.mkdir(exist_ok=True)
            linked(DRIVER_SOURCES, *(SANITIZERS if can_sanitize() else ()), program=program)

    def run(commands: Iterable[str]) -> list[str]:
        done = subprocess.run(
            [program],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run
