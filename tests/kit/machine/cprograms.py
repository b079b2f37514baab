"""Builds the library in C with its programs, if this machine can, and talks to those of tests."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.machine.commands import COMMAND_S
from kit.machine.processes import shared

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "client" / "c"
DRIVERS = ROOT / "tests" / "c" / "driver"
SANITIZERS = "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion", "-Wshadow", "-g", "-O1")
ENVIRONMENT = {
    **os.environ,
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
BUILD_S = 300.0
"""The time for the whole library, on a busy machine."""

Drive = Callable[[Iterable[str]], list[str]]
"""Gives commands to the driver of the codec, and returns the lines that it prints."""


def compiled(source: str, *options: str, program: str | Path = os.devnull) -> str | None:
    """Compile a source with the options for libzmq; returns the errors, None without any."""
    command = ["cc", *flags("libzmq", "--cflags"), *options, "-x", "c", "-", "-o", str(program), "-lzmq"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else None


def flags(library: str, *which: str, path: Path | None = None) -> list[str]:
    """Return what pkg-config says of a library. path: where else it looks."""
    environment = {**os.environ, **({"PKG_CONFIG_PATH": str(path)} if path else {})}
    command = ["pkg-config", *which, library]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return shlex.split(found.stdout)


def can_sanitize() -> bool:
    """True if this machine has the sanitizers."""
    return compiled("int main(void) { return 0; }", *SANITIZERS) is None


def require_compiler(*headers: str) -> None:
    """Skip the test where there is no compiler, or none of the headers."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler; on Debian type: apt-get install gcc libc6-dev")
    for header in headers:
        if compiled(f"#include <{header}>", "-E") is not None:
            pytest.skip(f"no {header}; on Debian type: apt-get install libzmq3-dev libxxhash-dev")


def require_cmake() -> None:
    """Skip the test where the library cannot be built."""
    require_compiler("zmq.h")
    if shutil.which("cmake") is None or shutil.which("pkg-config") is None:
        pytest.skip("no cmake or no pkg-config; on Debian type: apt-get install cmake pkg-config")


def run(*command: str | Path, seconds: float = BUILD_S, **popen: str | Path) -> str:
    """Run a command that has to succeed; returns its output."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=seconds, check=False, **popen
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def build_library(folder: Path, *options: str) -> None:
    """Build the library with its programs by cmake."""
    run("cmake", "-S", LIBRARY, "-B", folder, *options)
    run("cmake", "--build", folder, "-j", "2")


@contextmanager
def shared_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Build everything once for all workers of a run, with sanitizers if possible."""
    require_cmake()
    with shared(tmp_path_factory, "c-library") as folder:
        if not (folder / "libquoth.a").exists():
            build_library(folder, f"-DQUOTH_SANITIZE={'ON' if can_sanitize() else 'OFF'}")
        yield folder


def link(sources: Iterable[Path], *options: str, program: Path) -> None:
    """Build a program of tests that sees the internal headers."""
    paths = LIBRARY / "include", LIBRARY / "src", LIBRARY / "bench"
    run(
        "cc",
        *STRICT,
        "-D_DEFAULT_SOURCE",
        *(f"-I{path}" for path in paths),
        *options,
        *sources,
        "-o",
        program,
    )


def fail_each_allocation(built: Path, *arguments: str) -> int:
    """Run `driver/allocations.c` with the library in a folder; returns how many allocations have failed."""
    program = built / "allocations"
    wraps = ",".join(f"--wrap={name}" for name in ("malloc", "calloc", "realloc"))
    options = (f"-Wl,{wraps}", *(SANITIZERS if can_sanitize() else ()))
    link([DRIVERS / "allocations.c", built / "libquoth.a"], *options, "-lzmq", program=program)
    done = subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        env=ENVIRONMENT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return int(done.stdout.split()[0])


class Calls:
    """The driver that makes calls of the library. Lines go in and come out; a dot ends the output of each."""

    def __init__(self, program: Path, url: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [program, url, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.greeting = self.take()

    def __call__(self, *words: object) -> list[str]:
        """Make a call and return what it prints."""
        self.begin(*words)
        return self.take()

    def begin(self, *words: object) -> None:
        """Make a call whose output is taken later."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """Return the next line of a call that goes on."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def take(self) -> list[str]:
        """Return the rest of what a call prints, or what it prints before it ends."""
        found: list[str] = []
        while (line := self.line()) not in (".", ""):
            found.append(line)
        return found

    def end(self) -> None:
        """Close the input, and check that the program ends without an error of its sanitizers."""
        self._close()
        assert self.process.wait(COMMAND_S) == 0

    def kill(self) -> None:
        """End the program if it still runs."""
        self._close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


MakeCalls = Callable[..., Calls]
"""Starts such a driver for a URL, with more arguments."""
