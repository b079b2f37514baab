"""Small real file systems, tmpfs and ext4 in an image file: mounted for a test, unmounted whatever happens.

The process that mounts one waits for the end of its input and unmounts then. So it does when the test
process is killed.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import pytest

from kit.deadlines import DEADLINE_S

DiskKind = Literal["tmpfs", "ext4"]
KINDS: tuple[DiskKind, ...] = get_args(DiskKind)
DISK_BYTES = 20 * 2**20

_SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
_MOUNTER = """\
trap "" HUP INT TERM
place=$1
shift
mount "$@" "$place" || exit 1
echo mounted
read -r nothing
umount "$place" 2>/dev/null || umount -l "$place"
"""
_MKFS_OPTIONS = ("-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0")
"""Nothing reserved for root, nothing written later by the kernel: what is free changes by our doing alone."""


class SmallDisk:
    """A file system that is mounted at `path`, and the file of another program that takes its space."""

    def __init__(self, kind: DiskKind, path: Path) -> None:
        self.kind = kind
        self.path = path
        self._others = path / "others"

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be written."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Let another program take all that is free, to the last byte, or all but so many bytes."""
        with self._others.open("ab", buffering=0) as file:
            for size in (2**20, 2**10) if leave else (2**20, 2**10, 1):
                try:
                    while not leave or self.free_bytes >= leave + size:
                        file.write(b"\xff" * size)
                except OSError as problem:
                    if problem.errno != errno.ENOSPC:
                        raise
            os.fsync(file.fileno())

    def make_room(self) -> None:
        """Let the other program remove its file, so that its room is there at once.

        This file system alone is synced: others may have much to write.
        """
        self._others.unlink()
        subprocess.run(["sync", "--file-system", self.path], check=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stall every write to the file system meanwhile; skips the test where that cannot be done."""
        fsfreeze = shutil.which("fsfreeze", path=_SYSTEM_PATH)
        if fsfreeze is None:
            pytest.skip("fsfreeze is missing")
        subprocess.run([fsfreeze, "--freeze", self.path], check=True)
        try:
            yield
        finally:
            subprocess.run([fsfreeze, "--unfreeze", self.path], check=True)


@contextmanager
def mounted(kind: DiskKind, folder: Path, size: int = DISK_BYTES) -> Iterator[SmallDisk]:
    """A file system of so many bytes below a folder; skips the test where there can be none."""
    if sys.platform != "linux":
        pytest.skip("mounting a small file system is done on Linux only")
    place, image = folder / f"{kind}-disk", folder / f"{kind}-image"
    place.mkdir()
    if kind == "tmpfs":
        arguments = ["-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs"]
    else:
        _make_ext4(image, size)
        arguments = ["-t", "ext4", "-o", "loop,noatime", str(image)]
    mounter = _start_mounter(place, arguments)
    image.unlink(missing_ok=True)  # what is mounted keeps it
    try:
        yield SmallDisk(kind, place)
    finally:
        mounter.communicate(timeout=DEADLINE_S)
        assert mounter.returncode == 0, f"{place} is still mounted"
        assert not os.path.ismount(place)


def _make_ext4(image: Path, size: int) -> None:
    mkfs = shutil.which("mkfs.ext4", path=_SYSTEM_PATH)
    if mkfs is None:
        pytest.skip("mkfs.ext4 is missing")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run([mkfs, *_MKFS_OPTIONS, str(image)], check=True, capture_output=True)


def _start_mounter(place: Path, arguments: list[str]) -> subprocess.Popen[str]:
    mounter = subprocess.Popen(
        ["/bin/sh", "-c", _MOUNTER, "mounter", str(place), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PATH": _SYSTEM_PATH},
    )
    assert mounter.stdout is not None
    if mounter.stdout.readline() != "mounted\n":
        _, said = mounter.communicate(timeout=DEADLINE_S)
        pytest.skip(f"mounting is not permitted or not possible here: {said.strip()}")
    return mounter
