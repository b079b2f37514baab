"""Two machines in one: network namespaces that are joined by a cable and reach nothing else."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

V4, V6 = ("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")
"""The addresses of the two, which are unknown outside of the namespaces."""


class Machine(NamedTuple):
    """One end of the cable: its addresses, and the name of its namespace."""

    v4: str
    v6: str
    name: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words in front of a command that run it there."""
        return "ip", "netns", "exec", self.name


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Make two namespaces, and remove them at the end. Skips the test where that is impossible."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip; on Debian type: apt-get install iproute2")
    first, second = (Machine(v4, v6, f"quoth-{secrets.token_hex(4)}") for v4, v6 in zip(V4, V6, strict=True))
    try:
        _join(first, second)
        yield first, second
    finally:
        for one in (first, second):
            subprocess.run(["ip", "netns", "delete", one.name], capture_output=True, check=False)


def _join(first: Machine, second: Machine) -> None:
    try:
        for one in (first, second):
            _ip("netns", "add", one.name)
        cable = "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", second.name
        _ip("-n", first.name, *cable)
        for one in (first, second):
            _ip("-n", one.name, "address", "add", f"{one.v4}/24", "dev", "cable")
            _ip("-n", one.name, "address", "add", f"{one.v6}/64", "dev", "cable", "nodad")
            for device in ("lo", "cable"):
                _ip("-n", one.name, "link", "set", device, "up")
    except subprocess.CalledProcessError as problem:
        pytest.skip(f"no network namespaces here: {problem.stderr.strip()}")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
