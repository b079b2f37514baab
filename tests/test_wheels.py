"""`tools/wheels` and `tools/package` refuse what is wrong in one line, before they install or build anything.

The stages `python` and `system` of tools/check build with them.
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
SCRIPTS = "environment.sh", "installed.sh", "package", "release.sh", "wheels"
FILES = "pyproject.toml", *(f"tools/{name}" for name in SCRIPTS)
PROGRAMS = "bash", "cut", "dirname", "env", "git", "grep", "mkdir", "paste", "sed", "sh", "sort", "uname"
MORE_PROGRAMS = "apt-get", "dpkg-deb", "id", "mktemp", "realpath", "rm"
"""Programs that tools/package needs, too."""
USAGE = "type: tools/wheels [--allow-dirty] [FOLDER [PYTHON...]]"
GCC = "on Debian type: sudo apt-get install gcc libc6-dev"
DIRTY = "commit it, or type: tools/wheels --allow-dirty"
UNWRITABLE = "cannot write there; name another folder"
PACKAGE_USAGE = "type: tools/package [--allow-dirty] [--suite SUITE] [--wheel FILE] [FOLDER]"
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


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="it builds packages of Debian")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--unknown"], f"there is no option --unknown; {PACKAGE_USAGE}"),
        (["--suite"], f"--suite needs the name of a suite; {PACKAGE_USAGE}"),
        (["--wheel", "/no.whl", "dist"], "/no.whl: there is no such wheel"),
        (["dist"], f"not all of . is committed: bin/ ...; {DIRTY.replace('wheels', 'package')}"),
        (["--allow-dirty", ""], f"an empty name is no folder; {PACKAGE_USAGE}"),
        (["--allow-dirty", "bin/sh/x"], f"bin/sh/x: {UNWRITABLE}"),
    ],
)
def test_package_says_in_a_line_what_to_do(checkout: Path, arguments: list[str], text: str) -> None:
    for name in MORE_PROGRAMS:
        found = shutil.which(name)
        assert found, name
        (checkout / "bin" / name).symlink_to(found)
    done = subprocess.run(
        ["tools/package", *arguments],
        cwd=checkout, env={"PATH": "bin", "HOME": "/"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text.replace(" . ", f" {checkout} ") + "\n")
    assert not (checkout / "dist").exists()


def test_package_is_for_debian(checkout: Path) -> None:
    done = subprocess.run(
        ["tools/package"], cwd=checkout, env={"PATH": "bin"}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "tools/package builds packages of Debian, on Debian\n")
