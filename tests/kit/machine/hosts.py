"""Two machines in one: network namespaces that are joined by a cable and reach nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

from kit.machine.networks import can_be_had, new_host, on_host, run

V4, V6 = ("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")
"""The addresses of the two, which are unknown outside of the namespaces."""


class Machine(NamedTuple):
    """One end of the cable: its addresses, and the words in front of a command that run it there."""

    v4: str
    v6: str
    prefix: tuple[str, ...]


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Make two namespaces, and remove them at the end. Skips the test where that is impossible."""
    if os.geteuid() != 0 or not can_be_had():
        pytest.skip("network namespaces need root and ip; on Debian type: apt-get install iproute2")
    with ExitStack() as stack:
        pids = new_host(stack), new_host(stack)
        first, second = (Machine(v4, v6, on_host(pid)) for v4, v6, pid in zip(V4, V6, pids, strict=True))
        run(f"ip link add cable type veth peer name cable netns {pids[1]}", first.prefix)
        for one in (first, second):
            run(
                f"ip address add {one.v4}/24 dev cable; ip address add {one.v6}/64 dev cable nodad;"
                "ip link set lo up; ip link set cable up",
                one.prefix,
            )
        yield first, second
