"""Networks on this machine, in namespaces of the kernel: two machines, or a client, a router and a broker.

    this process -- router -- the broker

The router can drop all packets without notice to either side, like a cable that is unplugged further away. So
the operating systems of both ends make their own pauses between attempts. The networks are invisible from
outside, and end with the processes that hold them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from quothwire.closing import Closeable

OF_ITS_OWN = ("unshare", "--map-root-user", "--net")
"""The words in front of a command that give it a network of its own, with a loopback that is down."""
_CLIENT, _ROUTER_HERE, _ROUTER_THERE, _BROKER = "10.7.1.2", "10.7.1.1", "10.7.2.1", "10.7.2.2"

_EVENLY = "/proc/sys/net/ipv4/tcp_syn_linear_timeouts"
"""The attempts to connect before Linux doubles its pauses: some since 6.5, none before."""


def can_be_had() -> bool:
    """True if a network can be made here. It takes unshare, ip of iproute2, and the kernel's permission."""
    try:
        made = [*OF_ITS_OWN, "ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
        return subprocess.run(made, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Network(Closeable):
    """Made within `OF_ITS_OWN`. address: the broker's. prefix: runs a command on the broker's host."""

    address = _BROKER

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._router = new_host(self._stack)
        broker = new_host(self._stack)
        self.prefix = on_host(broker)
        run(f"test ! -e {_EVENLY} || echo 0 > {_EVENLY}")
        run(f"ip link set lo up; ip link add near type veth peer name near netns {self._router}")
        run(
            f"ip address add {_CLIENT}/24 dev near; ip link set near up;"
            f"ip route add default via {_ROUTER_HERE}"
        )
        run(
            f"ip link add far type veth peer name far netns {broker};"
            f"ip address add {_ROUTER_HERE}/24 dev near; ip link set near up;"
            f"ip address add {_ROUTER_THERE}/24 dev far; ip link set far up",
            on_host(self._router),
        )
        run(
            f"ip link set lo up; ip address add {_BROKER}/24 dev far; ip link set far up;"
            f"ip route add default via {_ROUTER_THERE}",
            self.prefix,
        )
        self.mend()

    def close(self) -> None:
        self._stack.close()

    def cut(self) -> None:
        self._forward(0)

    def mend(self) -> None:
        self._forward(1)

    def _forward(self, number: int) -> None:
        run(f"echo {number} > /proc/sys/net/ipv4/ip_forward", on_host(self._router))


def new_host(stack: ExitStack) -> int:
    """Make a host with a network of its own until the stack closes, and return the process id that has it."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    stack.enter_context(holder)
    assert holder.stdin is not None
    assert holder.stdout is not None
    stack.callback(holder.stdin.close)
    assert holder.stdout.readline() == b"\n", "it writes a line when it has its network"
    return holder.pid


def on_host(host: int) -> tuple[str, ...]:
    return "nsenter", f"--net={Path('/proc') / str(host) / 'ns' / 'net'}", "--"


def run(script: str, prefix: tuple[str, ...] = ()) -> None:
    subprocess.run([*prefix, "sh", "-ec", script], check=True)


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
    _require_networks()
    with ExitStack() as stack:
        yield _connected(new_host(stack), new_host(stack))


@contextmanager
def neighbour_of(host: int) -> Iterator[int]:
    """Connect the network of a process with a new one; yields the process that has the latter.

    The process has the first address of `V4`, its neighbour the second one. Skips like `two_machines`.
    """
    _require_networks()
    with ExitStack() as stack:
        other = new_host(stack)
        first, _ = _connected(host, other)
        try:
            yield other
        finally:
            run("ip link delete cable", first.prefix)


def _require_networks() -> None:
    if os.geteuid() != 0 or not can_be_had():
        pytest.skip("network namespaces need root and ip; on Debian type: apt-get install iproute2")


def _connected(*pids: int) -> tuple[Machine, Machine]:
    """Lay a cable between the networks of two processes."""
    first, second = (Machine(v4, v6, on_host(pid)) for v4, v6, pid in zip(V4, V6, pids, strict=True))
    run(f"ip link add cable type veth peer name cable netns {pids[1]}", first.prefix)
    for one in (first, second):
        run(
            f"ip address add {one.v4}/24 dev cable; ip address add {one.v6}/64 dev cable nodad;"
            "ip link set lo up; ip link set cable up",
            one.prefix,
        )
    return first, second
