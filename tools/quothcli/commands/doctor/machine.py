"""Checks of the machine: installed versions, the hot path, the clock."""

from __future__ import annotations

import ctypes
import platform
import time
from importlib.metadata import version

from quothcli.commands.doctor import Finding, fail, ok, warn
from quothwire.native import implementation

_SENSIBLE_S = 1_700_000_000
"""November 2023: an earlier clock was never set."""
_ERROR_MAX_US = 1_000_000
_TIME_ERROR = 5
"""Result of adjtimex(2) for a clock that is not synchronised."""
_MAX_ERROR_AT = 3
"""Place of maxerror in `struct timex`, counted in longs."""
_PACKAGES = ("pyzmq", "msgpack", "xxhash", "typer")


def versions() -> Finding:
    """Report the installed versions."""
    import zmq

    installed = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return ok("versions", f"quoth {version('quoth')}, {python}, libzmq {zmq.zmq_version()}, {installed}")


def hot_path() -> Finding:
    """Report whether compiled functions are in use."""
    found = implementation()
    if found == "C":
        return ok("hot path", "compiled, in C")
    hint = "a C compiler when Quoth is installed makes it several times as fast"
    return warn("hot path", f"in {found}", hint)


def clock() -> Finding:
    """Check that the clock is set and synchronised. Pointers are times."""
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if now < _SENSIBLE_S:
        return fail(
            "clock", f"it says {at}, so it was never set", "set it before the first record is written"
        )
    error_us = _clock_error_us()
    if error_us is None:
        return ok("clock", f"{at}; this system does not tell whether it is synchronised")
    if error_us < 0:
        text = f"{at}, not synchronised: pointers are times, and a wrong clock makes wrong ones"
        return warn("clock", text, "run chrony, systemd-timesyncd or ntpd")
    if error_us > _ERROR_MAX_US:
        text = f"{at}, synchronised, but wrong by up to {error_us / 1e6:.1f} s"
        return warn("clock", text, "look at its time servers")
    return ok("clock", f"{at}, synchronised, wrong by at most {error_us / 1e3:.1f} ms")


def _clock_error_us() -> int | None:
    """Return the largest error of the clock in microseconds; -1: not synchronised; None: unknown."""
    timex = (ctypes.c_long * 64)()  # zeros: nothing is changed
    try:
        state = ctypes.CDLL(None).adjtimex(timex)
    except (OSError, AttributeError):  # a system without it
        return None
    if state < 0:  # a sandbox may forbid it
        return None
    return -1 if state == _TIME_ERROR else timex[_MAX_ERROR_AT]
