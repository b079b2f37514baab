"""Fixtures of the tests of examples: their modules, and their programs as in a shell of a user."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from kit.deadlines import eventually
from kit.machine.commands import Ended

EXAMPLES = Path(__file__).parents[3] / "client" / "examples"

LoadExample = Callable[[str], Any]
RunExample = Callable[..., Ended]


@pytest.fixture
def load_example() -> LoadExample:
    """Load a module of the examples: `load_example("channel.py")`."""

    def load(name: str) -> Any:
        path = EXAMPLES / name
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def run_example(tmp_path: Path) -> Iterator[RunExample]:
    """Run a command that names files of the examples, with a folder for temporary files.

    Neither a process nor a file may be left when it has ended.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUOTH_", "XDG_"))}
    environment = kept | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(temporary),
    }
    groups: list[int] = []

    def run(*command: str, seconds: float) -> Ended:
        with subprocess.Popen(
            command,
            cwd=EXAMPLES,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            groups.append(process.pid)
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                raise AssertionError(f"it has not ended: {out!r} {err!r}") from None
        ended = Ended(process.returncode, out, err.decode())
        print(ended.out.decode(), ended.err)
        eventually(lambda: not _has_member(process.pid), "its processes have ended")
        groups.remove(process.pid)  # another process may have that number now
        assert list(temporary.iterdir()) == []
        return ended

    yield run
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _has_member(group: int) -> bool:
    """True if a group of processes has a member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
