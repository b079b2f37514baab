"""Builds the programs in C, if this machine can."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kit.machine.commands import COMMAND_S

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "client" / "c"
SOURCES = LIBRARY / "examples"
DRIVER_SOURCES = (
    ROOT / "tests" / "c" / "driver" / "driver.c",
    *(LIBRARY / "src" / name for name in ("batch.c", "msgpack.c", "codec.c")),
)
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion", "-Wshadow", "-g", "-O1")

Drive = Callable[[Iterable[str]], list[str]]
"""Gives commands to the driver in C, and returns the lines that it prints."""
SANITIZERS = "-fsanitize=address,undefined", "-fno-sanitize-recover=all"


def compiled(source: str, *options: str, program: str | Path = os.devnull) -> str | None:
    """Compile a source with the options of the Makefile for libzmq; returns the errors, None without any."""
    found = subprocess.run(["pkg-config", "--cflags", "libzmq"], capture_output=True, text=True, check=False)
    command = ["cc", *shlex.split(found.stdout), *options, "-x", "c", "-", "-o", str(program), "-lzmq"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else None


def linked(sources: Iterable[Path], *options: str, program: Path) -> None:
    """Build a program of the library's files and others that see its internal headers."""
    paths = (str(LIBRARY / "src"), str(LIBRARY / "include"))
    command = [
        "cc",
        *STRICT,
        *(f"-I{path}" for path in paths),
        *options,
        *map(str, sources),
        "-o",
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr


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
