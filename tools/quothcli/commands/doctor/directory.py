"""Checks of the data directory: its owner, its file system, its disk, its lock, the time of an fsync."""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quothcli.commands.doctor import Finding, Findings, fail, ok, warn
from quothcli.printing.text import bytes_text, printable
from quothwire.text.quantity import format_span

if TYPE_CHECKING:
    from quothd.config.config import Config


SYNCS = 100
SYNCS_S = 2.0
"""Longest time of the measurement: a slow disk gets fewer syncs."""
_BLOCK = bytes(4_096)
_CACHED_S = 0.000_2
"""An fsync below this has not reached a disk."""
_PASSING = {
    "tmpfs": "it is memory, and gone at the next boot",
    "ramfs": "it is memory, and gone at the next boot",
    "overlay": "it is a container's layer, and gone with the container",
}
_FAR = frozenset(("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "virtiofs"))
_CARELESS = frozenset(("nobarrier", "barrier=0", "data=writeback"))
_INODES_MIN = 10_000


class Mount(NamedTuple):
    """A file system that is mounted. options: of the mount and of the file system."""

    point: Path
    kind: str
    options: frozenset[str]


def check(directory: Path, config: Config) -> Findings:
    """Check a data directory, or the place where one would be made."""
    name, there = printable(str(directory)), directory.resolve()
    while not there.is_dir() and there != there.parent:
        there = there.parent
    exists = there == directory.resolve()
    if directory.exists() and not exists:
        yield fail("directory", f"{name} is no directory", "name another one")
        return
    if not exists:
        yield ok("directory", f"{name} does not exist yet; looked at {printable(str(there))}")
    yield _owner(there)
    yield _file_system(there)
    yield _room(there, config)
    yield _sync(there, config)
    if exists:
        yield _lock(there)


def _owner(directory: Path) -> Finding:
    found = directory.stat()
    me, mode = _user(os.getuid()), f"{stat.S_IMODE(found.st_mode):04o}"
    whose = f"{printable(str(directory))} belongs to {_user(found.st_uid)}, mode {mode}"
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return fail("owner", f"{whose}: {me} may not write there", "run the broker as its owner, or chown it")
    if found.st_uid != os.getuid():
        return warn("owner", f"{whose}, this is {me}", "run the broker as its owner")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return warn("owner", f"{whose}: others may write there", f"chmod go-w {directory}")
    return ok("owner", whose)


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _file_system(directory: Path) -> Finding:
    mount = mount_of(directory)
    if mount is None:
        return ok("file system", "this system does not tell what it is")
    text = f"{mount.kind} at {mount.point}"
    if "ro" in mount.options:
        return fail("file system", f"{text} is mounted read-only", "mount it rw, or use another directory")
    if why := _PASSING.get(mount.kind):
        return warn("file system", f"{text}: {why}", "use a directory on a disk, or a volume")
    if mount.kind in _FAR:
        advice = "locks and fsync are promises of that one: use a local disk"
        return warn("file system", f"{text} is another machine's", advice)
    if careless := sorted(mount.options & _CARELESS):
        text = f"{text} is mounted with {', '.join(careless)}"
        return warn("file system", text, "a power cut may take what was synced: mount it without")
    return ok("file system", text)


def mount_of(directory: Path) -> Mount | None:
    """Return the mount that a directory lies on; None where the system does not tell."""
    try:
        text = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return None
    best: Mount | None = None
    for line in text.splitlines():
        before, _, behind = line.partition(" - ")
        fields, kinds = before.split(), behind.split()
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]))
        if directory.is_relative_to(point) and (best is None or len(point.parts) >= len(best.point.parts)):
            best = Mount(point, kinds[0], frozenset(f"{fields[5]},{kinds[-1]}".split(",")))
    return best


def _room(directory: Path, config: Config) -> Finding:
    found = os.statvfs(directory)
    free, least = found.f_bavail * found.f_frsize, config.disk_free_min
    text = f"{bytes_text(free)} free of {bytes_text(found.f_blocks * found.f_frsize)}"
    of_config = f"disk_free_min is {bytes_text(least)}"
    advice = "make room, or set max_bytes or max_age"
    if free < least:
        return fail("room", f"{text}, {of_config}: nothing can be written", advice)
    if free < 4 * config.size_limit + least:
        return warn("room", f"{text}, {of_config}", f"that is a few segments: {advice}")
    if found.f_files > 0 and found.f_favail < _INODES_MIN:
        text = f"{text}, but only {found.f_favail:,} more files"
        return warn("room", text, "a topic takes five: make room for files")
    return ok("room", f"{text}; {of_config}")


def _sync(directory: Path, config: Config) -> Finding:
    try:
        times = sync_times(directory)
    except OSError as problem:
        text = f"it fails there: {problem.strerror}"
        return fail("fsync", text, "nothing can be written: look at the disk")
    half, most = times[len(times) // 2], times[int((len(times) - 1) * 0.99)]
    text = f"p50 {half * 1e3:.3f} ms, p99 {most * 1e3:.3f} ms of {len(times)}"
    if half < _CACHED_S:
        text += ": the disk has a battery, or only says that it is done"
    else:
        text += f"; waiting for each `synced` allows {1 / half:,.0f} a second, many publishers share one"
    if most > config.sync_interval:
        interval = f"sync_interval is {format_span(config.sync_interval)}"
        return warn("fsync", text, f"{interval}: publish in batches, or use another disk")
    return ok("fsync", text)


def sync_times(directory: Path, longest_s: float = SYNCS_S) -> list[float]:
    """Measure appending and syncing a block; returns the seconds in order. Raises OSError.

    The file has no name as soon as it is open, so a kill leaves nothing behind.
    """
    from quothlog.storage.filesystem import PosixFileSystem

    path = directory / f".quoth-doctor-{os.getpid()}"
    filesystem = PosixFileSystem()
    file = filesystem.create(path)
    try:
        filesystem.remove(path)
        times: list[float] = []
        end = time.monotonic() + longest_s
        while len(times) < SYNCS and (not times or time.monotonic() < end):
            began = time.perf_counter()
            file.append([_BLOCK])
            file.sync()
            times.append(time.perf_counter() - began)
        return sorted(times)
    finally:
        file.close()


def _lock(directory: Path) -> Finding:
    """Find the owner of the lock. Taking it could refuse a broker that is just starting."""
    from quothlog.file_format import LOCK_NAME
    from quothwire.flock import owner_in
    from quothwire.text.paths import STRANGE, open_regular

    file = directory / LOCK_NAME
    try:
        fd = open_regular(file, os.O_RDONLY)
    except FileNotFoundError:
        return ok("lock", "no broker has opened this directory yet")
    except OSError as problem:
        if problem.errno in STRANGE:
            return fail("lock", f"{file}: {problem.strerror}", "no broker starts there: move that away")
        return warn("lock", f"{file} cannot be read: {problem.strerror}", "ask as the owner of the directory")
    try:
        owner, inode = owner_in(fd), os.fstat(fd).st_ino
    finally:
        os.close(fd)
    try:
        held = re.search(rf" FLOCK .*:{inode} ", Path("/proc/locks").read_text()) is not None
    except OSError:
        held = owner.isdigit() and _runs(int(owner))
    return ok("lock", f"held by process {owner}" if held else f"free; process {owner} had it last")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as problem:
        return isinstance(problem, PermissionError)
    return True
