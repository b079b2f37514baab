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


def compiles(source: str, *options: str) -> bool:
    """True if the compiler accepts this, with the options of the Makefile for libzmq."""
    found = subprocess.run(["pkg-config", "--cflags", "libzmq"], capture_output=True, text=True, check=False)
    command = ["cc", *shlex.split(found.stdout), *options, "-x", "c", "-", "-o", os.devnull]
    return subprocess.run(command, input=source.encode(), capture_output=True, check=False).returncode == 0


def copied(folder: Path) -> Path:
    """Copy the example's sources into a new folder. Skips the test where they cannot be built."""
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("no C compiler or no make; on Debian type: apt-get install gcc libc6-dev make")
    if not compiles("#include <zmq.h>", "-E"):
        pytest.skip("no headers of libzmq; on Debian type: apt-get install libzmq3-dev")
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("quothpipe", "quothpipe-sanitized"))
    return folder


def make(folder: Path, *targets: str) -> str:
    done = subprocess.run(["make", *targets], cwd=folder, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
