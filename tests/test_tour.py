"""The tour in the README: its commands, executed in order, print the lines that follow them.

In an expected line `...` matches any text, and as a line of its own any number of lines.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kit.machine.ports import free_port

README = Path(__file__).parent.parent / "README.md"
TOUR_S = 120.0
_MARK = "=== step "


class Step(NamedTuple):
    """A command and its expected output in the README."""

    command: str
    printed: list[str]


def steps() -> list[Step]:
    """Return the steps of the tour in order."""
    found: list[Step] = []
    for block in re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], []))
            elif line.startswith("> "):
                found[-1] = found[-1]._replace(command=f"{found[-1].command}\n{line[2:]}")
            else:
                found[-1].printed.append(line)
    return found


def pattern_of(printed: list[str]) -> str:
    """Return the expected output of a step as a regular expression."""
    lines = ["(.*\n)*" if line == "..." else f"{_line(line)}\n" for line in printed]
    return "".join(lines)


def _line(line: str) -> str:
    return ".*".join(map(re.escape, line.split("...")))


@pytest.fixture
def printed(tmp_path: Path) -> list[str]:
    """Execute all steps in one shell in an empty folder, and return the output of each."""
    script = "".join(f"echo '{_MARK}{row}'\n{step.command}\n" for row, step in enumerate(steps()))
    port, web_port = str(free_port()), str(free_port())
    script = script.replace("127.0.0.1:8080", f"127.0.0.1:{web_port}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUOTH_", "XDG_"))}
    environment = kept | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "QUOTH_PORT": port,  # in place of 5555, which may be taken here
        "QUOTH_URL": f"tcp://127.0.0.1:{port}",
        "QUOTH_WEB_PORT": web_port,
        "QUOTH_WEB_URL": f"tcp://127.0.0.1:{port}",
    }
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            output, _ = shell.communicate(timeout=TOUR_S)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
    parts = re.split(rf"^{_MARK}\d+\n", output.replace(port, "5555"), flags=re.MULTILINE)
    return parts[1:]


def test_commands_of_the_tour_print_the_lines_that_follow_them(printed: list[str]) -> None:
    tour = steps()
    assert len(tour) > 10
    assert len(printed) == len(tour), printed
    for step, text in zip(tour, printed, strict=True):
        expected = pattern_of(step.printed)
        assert re.fullmatch(expected, text), f"$ {step.command}\n{text}\ninstead of\n" + "\n".join(
            step.printed
        )
