"""A Debian that boots with systemd in a container, for tests of the installed service.

debootstrap makes the root directory once for each suite. It stays beside the environment, with the wheels for
the installation, and with what the first installation made in /opt. A second run needs no network, and
installs above that. A machine gets an overlay above both, so that it changes nothing there, and a loopback of
its own. It ends with the process that booted it.

QUOTH_SYSTEM_SUITE names another suite of Debian, with another Python and another systemd.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path

import pytest

from kit.broker.supervisors import Supervisor
from kit.machine.commands import Ended

PROJECT = Path(__file__).parents[3]
SUITE = os.environ.get("QUOTH_SYSTEM_SUITE") or "bookworm"
PACKAGES = ("python3", "python3-venv", "systemd", "systemd-sysv")
"""The packages of README that a minimal Debian does not have: Python, and the init that is tested."""
BOOT_S = 60.0
RUN_S = 300.0
"""Far longer than any step takes, the installation included."""
_NUMBERS = count()
_TOOLS = ("debootstrap", "systemd-nspawn", "unshare", "setpriv", "nsenter")
_BOOT = """
cd "$1"
mount -t overlay overlay -o lowerdir=installed:base,upperdir=upper,workdir=work root
umount -R /sys/fs/cgroup 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup
group=/sys/fs/cgroup/$2
shift 2
mkdir "$group"
sh -c 'echo $$ > "$0/cgroup.procs"; exec setpriv --pdeathsig KILL "$@"' "$group" "$@"
find "$group" -depth -type d -exec rmdir {} +
"""
"""Runs in a mount namespace of its own, so that all mounts end with it. Mounts the control groups as newer
versions of systemd need them, also where this system has the older ones."""


class Unbootable(Exception):
    """No machine can be booted here, for the reason in the text."""


def missing() -> str:
    """Return the reason for which no machine can be booted here; empty if none is known before."""
    if sys.platform != "linux":
        return "systemd runs on Linux only"
    if os.geteuid() != 0:
        return "only root may boot a container"
    tools = [name for name in _TOOLS if shutil.which(name) is None]
    return f"there is no {', '.join(tools)}: apt-get install debootstrap systemd-container" if tools else ""


_MISSING = missing()
needs_machine = pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "a machine can be booted here")


class Base:
    """The root directory of a suite and the wheels for its Python. Raises `Unbootable`."""

    def __init__(self, suite: str = SUITE) -> None:
        key = blake2b(repr((suite, PACKAGES)).encode(), digest_size=6).hexdigest()
        cache = Path(sys.prefix) / "system"
        cache.mkdir(mode=0o700, exist_ok=True)
        with _only_one(cache / "lock"):
            self.root = _made_once(cache / f"{suite}-{key}", lambda path: _bootstrap(suite, path))
            self.python = max(path.name[6:] for path in (self.root / "usr/bin").glob("python3.*[0-9]"))
            wanted = requirements()
            key = f"{self.python}-{blake2b(repr(wanted).encode(), digest_size=6).hexdigest()}"
            self.wheels = _made_once(
                cache / f"wheels-{key}", lambda path: _download(self.python, wanted, path)
            )
        self.suite = suite
        self.installed = cache / f"installed-{suite}-{key}"

    def keep(self, installed: Path) -> None:
        """Keep what an installation has made in /opt, unless that of another one is kept."""
        with _only_one(self.installed.with_name("lock")):
            _made_once(self.installed, lambda path: shutil.copytree(installed, path / "opt", symlinks=True))


def requirements() -> list[str]:
    """Return the packages that pip needs to build and to install Quoth, and quoth-web if it is there."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    found = project["project"]
    has_web = (PROJECT / "systemd" / "quoth-web.service").exists()
    web = found["optional-dependencies"]["web"] if has_web else ()
    return [*project["build-system"]["requires"], *found["dependencies"], *web]


class Machine:
    """A running machine. directory: the place of its changes. Raises `Unbootable`."""

    def __init__(self, base: Base, directory: Path) -> None:
        self.directory = directory
        self._leader = ""
        for name in ("upper", "work", "root"):
            (directory / name).mkdir()
        (directory / "base").symlink_to(base.root)
        name = f"quoth-test-{os.getpid()}-{next(_NUMBERS)}"
        if base.installed.exists():
            (directory / "installed").symlink_to(base.installed)
        else:
            (directory / "installed").mkdir()
        supervisor = Supervisor.below(directory)
        self._console = (directory / "console").open("w+")
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", _BOOT, "boot",
             str(directory), name,
             "systemd-nspawn", "--boot", "--quiet", "--register=no", "--keep-unit", "--notify-ready=yes",
             "--private-network", "--console=pipe", "--resolv-conf=off", "--timezone=off",
             "--link-journal=no",
             f"--machine={name}", f"--directory={directory / 'root'}",
             f"--bind-ro={PROJECT}:/src", f"--bind-ro={base.wheels}:/wheels"],
            stdin=subprocess.DEVNULL, stdout=self._console, stderr=self._console,
            env={**os.environ, **supervisor.environment()},
        )  # fmt: skip
        try:
            supervisor.wait_for("READY", seconds=BOOT_S)
            received = [
                one.fields["X_NSPAWN_LEADER_PID"] for one in supervisor.received if len(one.fields) > 1
            ]
            self._leader = received[-1]
        except (AssertionError, IndexError) as problem:
            self.close()
            raise Unbootable(f"it does not boot: {self.console[-1_000:] or problem}") from problem
        finally:
            supervisor.close()

    @property
    def console(self) -> str:
        self._console.seek(0)
        return self._console.read()

    @property
    def leader(self) -> int:
        """The process of its init, as this system knows it."""
        return int(self._leader)

    def run(
        self,
        script: str,
        *arguments: str,
        stdin: bytes = b"",
        seconds: float = RUN_S,
        network: int | None = None,
    ) -> Ended:
        """Run a shell script in it, as root, to its end. arguments: $1 and so on. network: see `start`."""
        with self.start(script, *arguments, stdin=subprocess.PIPE, network=network) as process:
            try:
                out, err = process.communicate(stdin, timeout=seconds)
            finally:
                process.kill()
        return Ended(process.returncode, out, err.decode())

    def start(
        self, script: str, *arguments: str, stdin: int = subprocess.DEVNULL, network: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a shell script. network: the process whose network it has, instead of the machine's."""
        nsenter = shutil.which("nsenter")
        assert nsenter is not None
        net = [] if network is None else [f"--net=/proc/{network}/ns/net"]
        return subprocess.Popen(
            [nsenter, "--target", self._leader, "--all", *net, "--",
             "/bin/sh", "-ec", f"cd /src\n{script}", "sh", *arguments],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "LANG": "C.UTF-8",
                "PIP_NO_COMPILE": "1",
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": "/wheels",
            },
        )  # fmt: skip

    def copy(self, source: Path, path: str) -> None:
        """Copy a file of this system to a path in it."""
        ended = self.run('cat > "$1"', path, stdin=source.read_bytes())
        assert ended.status == 0, ended.err

    def outside(self, pid: int) -> int:
        """Return the number by which this system knows a process of the machine."""
        namespace = os.readlink(f"/proc/{self._leader}/ns/pid")
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                numbers = re.findall(r"^NSpid:\s.*?(\d+)$", (path / "status").read_text(), re.MULTILINE)
                if numbers == [str(pid)] and os.readlink(path / "ns/pid") == namespace:
                    return int(path.name)
        raise AssertionError(f"the machine has no process {pid}")

    def close(self) -> None:
        """Kill all its processes with its init, and remove its changes."""
        with self._console:
            try:
                if self._leader:
                    os.kill(int(self._leader), signal.SIGKILL)
                    self._process.wait(timeout=BOOT_S)
            finally:
                self._process.kill()
                self._process.wait()
        for name in ("upper", "work"):
            shutil.rmtree(self.directory / name)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock file, for which other runs wait."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _made_once(path: Path, make: Callable[[Path], object]) -> Path:
    """Return a path for later runs, after making it, whole or not at all, if it does not exist."""
    if not path.exists():
        beside = path.with_name(f"{path.name}.new")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        make(beside)
        beside.rename(path)
    return path


def _bootstrap(suite: str, path: Path) -> None:
    """Install a suite's packages. The mounts end with a namespace, also after a failure."""
    _done(
        "unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
        suite, str(path),
    )  # fmt: skip
    for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(path / name)


def _download(python: str, wanted: list[str], path: Path) -> None:
    """Download wheels for another Python than this one. Its libc may only be a newer one."""
    _done(
        sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
        f"--python-version={python}", f"--dest={path}", *wanted,
    )  # fmt: skip


def _done(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        output = (done.stdout + done.stderr).strip().splitlines() or [""]
        raise Unbootable(f"{command[0]} ... {command[-1]} ended with {done.returncode}: {output[-1]}")
