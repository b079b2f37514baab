"""The clock: time, and the identity of this boot. It is an argument everywhere, so that a test can set it."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from quothwire.errors import error

_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DARWIN_BOOT_ID = "kern.bootsessionuuid"
_HINT = (
    "without it a log cannot tell that the power failed; in a unit of systemd ProcSubset=pid hides it: "
    "set ProcSubset=all (systemctl edit); a container needs /proc/sys, read-only will do"
)


class Clock(Protocol):
    """The port to a clock."""

    def now(self) -> int:
        """Microseconds since 1970, UTC. May step back."""

    def monotonic(self) -> float:
        """Seconds that only ever grow, from any beginning."""

    def sleep(self, seconds: float) -> None:
        """Wait so long."""

    def boot_id(self) -> bytes:
        """16 bytes that change when the machine loses its page cache, and only then.

        Raises `BrokerFailure` ``unusable_system`` if they cannot be known.
        """


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """See `Clock.now`."""
        return time.time_ns() // 1_000

    monotonic = staticmethod(time.monotonic)
    """See `Clock.monotonic`."""
    sleep = staticmethod(time.sleep)
    """See `Clock.sleep`."""

    def boot_id(self) -> bytes:
        """See `Clock.boot_id`."""
        return _system_boot_id()


@cache
def _system_boot_id() -> bytes:
    linux = sys.platform == "linux"
    where = str(_LINUX_BOOT_ID) if linux else f"sysctl {_DARWIN_BOOT_ID}"
    try:
        text = (_LINUX_BOOT_ID.read_text() if linux else _sysctl(_DARWIN_BOOT_ID)).strip()
    except (OSError, subprocess.CalledProcessError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise error("unusable_system", f"{where}: {reason}", _HINT) from problem
    if not text:
        raise error("unusable_system", f"{where} is empty", _HINT)
    return blake2b(text.encode(), digest_size=16).digest()


def _sysctl(name: str) -> str:
    return subprocess.check_output(["/usr/sbin/sysctl", "-n", name], stderr=subprocess.DEVNULL, text=True)
