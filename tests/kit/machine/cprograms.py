"""Builds the example in C, if this machine can."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.machine.commands import COMMAND_S

SOURCES = Path(__file__).resolve().parents[3] / "client" / "c" / "examples"


SANITIZERS = "-fsanitize=address,undefined", "-fno-sanitize-recover=all"


def compiled(source: str, *options: str, program: str | Path = os.devnull) -> str | None:
    """Compile a source with the options of the Makefile for libzmq; returns the errors, None without any."""
    found = subprocess.run(["pkg-config", "--cflags", "libzmq"], capture_output=True, text=True, check=False)
    command = ["cc", *shlex.split(found.stdout), *options, "-x", "c", "-", "-o", str(program), "-lzmq"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else None


def can_sanitize() -> bool:
    """True if this machine has the sanitizers."""
    return compiled("int main(void) { return 0; }", *SANITIZERS) is None


def require_compiler(*headers: str) -> None:
    """Skip the test where there is no compiler, or none of the headers."""
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("no C compiler or no make; on Debian type: apt-get install gcc libc6-dev make")
    for header in headers:
        if compiled(f"#include <{header}>", "-E") is not None:
            pytest.skip(f"no {header}; on Debian type: apt-get install libzmq3-dev libxxhash-dev")


def copied(folder: Path) -> Path:
    """Copy the example's sources into a new folder. Skips the test where they cannot be built."""
    require_compiler("zmq.h")
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("quothpipe", "quothpipe-sanitized"))
    return folder


def make(folder: Path, *targets: str) -> str:
    done = subprocess.run(["make", *targets], cwd=folder, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
