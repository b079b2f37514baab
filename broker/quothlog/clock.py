"""The clock: where time and the identity of this boot come from, injected so that a test can turn it."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What the log asks of a clock."""

    def now(self) -> int:
        """Microseconds since 1970, UTC. May step back."""

    def boot_id(self) -> bytes:
        """16 bytes that change when the machine loses its page cache, and only then."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """See `Clock.now`."""
        return time.time_ns() // 1_000

    def boot_id(self) -> bytes:
        """See `Clock.boot_id`."""
        return _system_boot_id()


@cache
def _system_boot_id() -> bytes:
    if sys.platform == "linux":
        text = _LINUX_BOOT_ID.read_text()
    else:
        text = subprocess.check_output(["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], text=True)
    return blake2b(text.strip().encode(), digest_size=16).digest()
