"""Checks of the machine: clock, boot id, memory, open files, installed versions."""

from __future__ import annotations

import ctypes
import platform
import re
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from quothcli.commands.doctor.finding import Findings, fail, ok, warn
from quothcli.printing.text import bytes_text
from quothlog.storage.clock import Clock
from quothwire.errors import QuothError

if TYPE_CHECKING:
    from quothd.config.config import Config


_SENSIBLE_S = 1_700_000_000
"""November 2023: an earlier clock was never set."""
_ERROR_MAX_US = 1_000_000
_TIME_ERROR = 5
"""Result of adjtimex(2) for a clock that is not synchronised."""
_DESCRIPTORS_BESIDE = 100
"""Sockets, the lock, the scrubber, the interpreter."""
_PACKAGES = ("pyzmq", "msgpack", "xxhash", "typer")


class _Timex(ctypes.Structure):
    """The beginning of `struct timex`, and room for what follows."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock() -> Findings:
    """Check that the clock is set and synchronised. Pointers are times."""
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if now < _SENSIBLE_S:
        yield fail("clock", f"it says {at}, so it was never set", "set it before the first record is written")
        return
    found = _ntp()
    if found is None:
        yield ok("clock", f"{at}; this system does not tell whether it is synchronised")
    elif found < 0:
        yield warn(
            "clock",
            f"{at}, not synchronised: pointers are times, and a wrong clock makes wrong ones",
            "run chrony, systemd-timesyncd or ntpd",
        )
    elif found > _ERROR_MAX_US:
        yield warn(
            "clock", f"{at}, synchronised, but wrong by up to {found / 1e6:.1f} s", "look at its time servers"
        )
    else:
        yield ok("clock", f"{at}, synchronised, wrong by at most {found / 1e3:.1f} ms")


def _ntp() -> int | None:
    """Return the largest error of the clock in microseconds; -1: not synchronised; None: unknown."""
    if sys.platform != "linux":
        return None
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None
    if state < 0:  # a sandbox may forbid it
        return None
    return -1 if state == _TIME_ERROR else int(timex.maxerror)


def boot(clock: Clock) -> Findings:
    """Check that the system has a boot id, which each segment stores."""
    try:
        clock.boot_id()
    except QuothError as problem:
        yield fail("boot", problem.text, problem.hint)
    else:
        yield ok("boot", "the system tells which one this is, so a loss of power is noticed")


def descriptors(config: Config, pid: int | None) -> Findings:
    """Check the limit of open files. pid: of a broker that runs here."""
    need = 3 * config.workers_max + _DESCRIPTORS_BESIDE
    limit = _limit_of(pid) if pid else None
    whose = f"process {pid}" if limit is not None else "a process started here"
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit in (-1, resource.RLIM_INFINITY)
    text = f"{whose} may open {'any number of' if unlimited else f'{limit:,}'} files"
    if unlimited or limit >= need:
        yield ok("descriptors", f"{text}, {config.workers_max} active topics need {need:,}")
        return
    yield warn(
        "descriptors",
        f"{text}, {config.workers_max} active topics need {need:,}",
        f"ulimit -n {need}, LimitNOFILE={need} in the unit, or --workers-max "
        f"{max(1, (limit - _DESCRIPTORS_BESIDE) // 3)}",
    )


def _limit_of(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return None
    match = re.search(r"^Max open files\s+(\d+|unlimited)", text, re.MULTILINE)
    return None if match is None else -1 if match[1] == "unlimited" else int(match[1])


def memory(config: Config) -> Findings:
    """Check the memory for the requests that a broker may hold."""
    free = [one for one in (_available_bytes(), _group_bytes()) if one is not None]
    if not free:
        yield ok("memory", "this system does not tell how much is available")
        return
    need = 2 * config.request_bytes_max
    text = f"{bytes_text(min(free))} available"
    if min(free) < need:
        advice = (
            f"a broker may hold requests of {bytes_text(config.request_bytes_max)}: lower --request-bytes-max"
        )
        yield warn("memory", text, advice)
    else:
        yield ok("memory", text)


def _available_bytes() -> int | None:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1_024 if match else None


def _group_bytes() -> int | None:
    """Return the bytes that the control group of this process leaves; None without a limit."""
    try:
        group = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
        folder = Path("/sys/fs/cgroup") / group
        most, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if most == "max" else int(most) - int(used)
    except (OSError, ValueError):
        return None


def versions() -> Findings:
    """Report the installed versions."""
    import zmq

    installed = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield ok("versions", f"quoth {version('quoth')}, {python}, libzmq {zmq.zmq_version()}, {installed}")
