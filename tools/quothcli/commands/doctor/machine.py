"""Checks of the machine: installed versions, the hot path, the clock."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from quothcli.commands.doctor import Finding, fail, ok, warn
from quothwire.native import implementation

_SENSIBLE_S = 1_700_000_000
"""November 2023: an earlier clock was never set."""
_ERROR_MAX_US = 1_000_000
_TIME_ERROR = 5
"""Result of adjtimex(2) for a clock that is not synchronised."""
_MAX_ERROR_AT = 3
"""Place of maxerror in `struct timex`, counted in longs."""
_LISTENS = "0A"
"""The state of a listening socket in /proc/net/tcp."""
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
    hint = (
        "a C compiler when Quoth is installed makes it several times as fast, and on Linux keeps clients "
        "that are killed from ending the broker"
    )
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


def open_addresses(pid: int) -> list[str]:
    """Return the addresses at which a process here accepts TCP connections of other machines.

    None if there is none, or if the system does not tell.
    """
    sockets: set[str] = set()
    with suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                sockets.add(os.readlink(fd))
    return sorted({at for at, inode in _listening(pid) if f"socket:[{inode}]" in sockets})


def _listening(pid: int) -> Iterator[tuple[str, str]]:
    """Yield address and inode of the listening sockets in the network of a process, without loopback."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            host, _, port = fields[1].partition(":")
            address = _address(host)
            if fields[3] == _LISTENS and not address.is_loopback:
                shown = f"[{address}]" if address.version == 6 else str(address)
                yield f"tcp://{shown}:{int(port, 16)}", fields[9]


def _address(digits: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address that /proc/net/tcp shows: words of four bytes in the order of this machine."""
    words = (digits[at : at + 8] for at in range(0, len(digits), 8))
    address = ipaddress.ip_address(b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words))
    return getattr(address, "ipv4_mapped", None) or address
