"""`tools/wheels` refuses what is wrong in one line, before it installs or builds anything.

The stage `python` of tools/check builds with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = "pyproject.toml", "tools/wheels", "tools/environment.sh", "tools/installed.sh"
PROGRAMS = "bash", "cut", "dirname", "env", "git", "grep", "mkdir", "paste", "sed", "sh", "sort", "uname"
USAGE = "type: tools/wheels [--allow-dirty] [FOLDER [PYTHON...]]"
GCC = "on Debian type: sudo apt-get install gcc libc6-dev"
DIRTY = "commit it, or type: tools/wheels --allow-dirty"
UNWRITABLE = "cannot write there; name another folder"
SUPPORTED = "CPython 3.11, 3.12, 3.13 or 3.14"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="it compiles for Pythons on Linux that have their headers",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the scripts, not committed, and with the programs that they call in ``bin``."""
    (tmp_path / "tools").mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found, name
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "compiler", "text"),
    [
        (["--unknown"], "sh", f"there is no option --unknown; {USAGE}"),
        (["dist"], "/no/cc", f"/no/cc: no such C compiler; {GCC}"),
        (["dist"], "sh", f"no {SUPPORTED} was found; install one, or name it; {USAGE}"),
        (["dist", "/no/python"], "sh", f"/no/python is no {SUPPORTED}"),
        (["dist", sys.executable], "sh", f"not all of . is committed: bin/ ...; {DIRTY}"),
        (["--allow-dirty", "", sys.executable], "sh", f"an empty name is no folder; {USAGE}"),
        (["--allow-dirty", "bin/sh/x", sys.executable], "sh", f"bin/sh/x: {UNWRITABLE}"),
    ],
)  # fmt: skip
def test_wheels_say_in_a_line_what_to_do(
    checkout: Path, arguments: list[str], compiler: str, text: str
) -> None:
    environment = {
        "PATH": "bin",
        "PYENV_ROOT": "/no/pyenv",
        "CC": compiler,
        "HOME": os.environ.get("HOME", "/"),
    }
    done = subprocess.run(
        ["tools/wheels", *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text.replace(" . ", f" {checkout} ") + "\n")
    assert not (checkout / "dist").exists()
