"""Debian packages for a machine: of this tree, and of a release in tests/golden/releases."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path
from typing import NamedTuple

from kit.machine.machines import PROJECT, Base
from kit.releases.releases import unpacked

PACKAGE = PROJECT / "tools" / "package"
FORMER = "0.1.0"
"""The release before this one."""


class Packages(NamedTuple):
    """The paths of the packages on this system."""

    former: Path
    current: Path
    web: Path


def build(base: Base, folder: Path, *options: str) -> Path:
    """Build for the suite of a machine, without a network; returns the path of the package quoth."""
    done = subprocess.run(
        [PACKAGE, "--allow-dirty", "--suite", base.suite, *options, folder],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(base.wheels)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Path(next(line for line in done.stdout.splitlines() if "/quoth_" in line))


def build_release(version: str, base: Base, folder: Path) -> Path:
    """Build the package of a release in an empty folder."""
    return build(base, folder, "--wheel", str(wheel_of(version, folder)))


def wheel_of(version: str, folder: Path) -> Path:
    """Make a wheel of a release again out of its files."""
    files = unpacked(version, folder / version)
    path = folder / f"quoth-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(files.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(files))
    return path
