"""libquoth beside a bare DEALER in C: `client/c/bench/ratio.c`, built where there is what that takes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LIBRARY = Path(__file__).resolve().parents[3] / "client" / "c"
"""Only in the source tree: wheels have no sources in C."""
BATCHES = 4_000
_TOOLS = "cc", "cmake", "pkg-config"
_OPTIONS = "-DQUOTH_EXAMPLES=OFF", "-DQUOTH_SANITIZE=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"


class NotBuilt(Exception):
    """The program cannot be built here; its text says why."""


class Pairs(NamedTuple):
    """Batches a second of the bare DEALER and of the library, in the rounds of one run."""

    write: Sequence[tuple[float, float]]
    read: Sequence[tuple[float, float]]


def build(folder: Path) -> Path:
    """Build the program in a folder, and return its path. Raises `NotBuilt`."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        raise NotBuilt(f"no {' and no '.join(missing)}")
    if not (LIBRARY / "CMakeLists.txt").exists():
        raise NotBuilt("no sources of libquoth, which are in the source tree")
    _run("pkg-config", "--exists", "--print-errors", "libzmq")
    _run("cmake", "-S", str(LIBRARY), "-B", str(folder), *_OPTIONS)
    _run("cmake", "--build", str(folder), "--target", "quoth-c-ratio", "-j", "2")
    return folder / "bench" / "quoth-c-ratio"


def _run(*command: str) -> None:
    """Run a step of the build. Raises `NotBuilt` with the first line of its errors."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [" ".join(command)]
        raise NotBuilt(f"libquoth cannot be built: {said[0]}")


def measure(program: Path, url: str, topic: str, rounds: int, batches: int, key_file: str = "") -> Pairs:
    """Run the program on a broker. key_file: of a client, empty for a broker without keys.

    Raises CalledProcessError if it fails, after it has said why on stderr.
    """
    command = [str(program), url, topic, str(batches), str(rounds), *([key_file] if key_file else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    write, read = (
        list(zip(found[work]["bare"], found[work]["library"], strict=True)) for work in Pairs._fields
    )
    return Pairs(write, read)
