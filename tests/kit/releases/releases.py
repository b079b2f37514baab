"""The releases in tests/golden/releases: their code, and a data directory that it has written.

    PYTHONPATH=tests python -m kit.releases.releases VERSION      adds one, by the code of this tree

Each folder there has

    quoth.tar.xz    the files of its wheel, in Python alone
    data            the data directory of its broker, after `program.record`
    said.json       what `program.content` then printed, which later versions have to print, too

A release is added once and never changed.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from kit.broker.brokers import BrokerProcess
from kit.releases import program

RELEASES = Path(__file__).parents[2] / "golden" / "releases"
_PROJECT = Path(__file__).parents[3]
_PROGRAM_S = 60.0


def versions() -> list[str]:
    """Return the releases that are there."""
    return sorted(path.name for path in RELEASES.iterdir())


def unpacked(version: str, folder: Path) -> Path:
    """Unpack the files of a release's wheel into a folder, from which Python can import them."""
    with tarfile.open(RELEASES / version / "quoth.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def run_program(code: Path | None, *arguments: str) -> dict[str, Any]:
    """Run `program` with the code of a release, or of this tree; returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if code is not None:
        environment["PYTHONPATH"] = str(code)
    done = subprocess.run(
        [sys.executable, "-P", program.__file__, *arguments],
        capture_output=True, text=True, timeout=_PROGRAM_S, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def broker_of(code: Path, directory: Path, **settings: Any) -> BrokerProcess:
    """Return a broker of a release, which is not started."""
    return BrokerProcess(directory, environment={"PYTHONPATH": str(code), "QUOTH_NATIVE": "0"}, **settings)


def add(version: str) -> None:
    """Add this tree as a release."""
    folder = RELEASES / version
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        _pack(Path(scratch), folder / "quoth.tar.xz")
        code = unpacked(version, Path(scratch) / "code")
        broker = broker_of(code, folder / "data", worker_timeout=0.5)
        broker.start()
        try:
            said = run_program(code, "record", broker.url)
            assert broker.terminate() == 0
        finally:
            broker.close()
    for lock in folder.rglob("lock"):  # it names a process
        lock.unlink()
    (folder / "said.json").write_text(json.dumps(said, indent=0) + "\n", "utf-8")


def _pack(scratch: Path, path: Path) -> None:
    """Write the files of this tree's wheel, in one archive that compresses them together."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch)],
        cwd=_PROJECT, env={**os.environ, "QUOTH_BUILD_NATIVE": "0"}, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(scratch / "wheel")
    with (
        lzma.open(path, "w", preset=9 | lzma.PRESET_EXTREME) as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        for one in sorted((scratch / "wheel").rglob("*")):
            if one.is_file():
                archive.add(one, one.relative_to(scratch / "wheel").as_posix(), filter=_anonymous)


def _anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry without user, mode and time of this machine."""
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    file.mode, file.mtime = 0o644, 1_580_601_600
    return file


if __name__ == "__main__":
    add(*sys.argv[1:])
