"""The target: the broker that is measured, a process of its own on a directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import quoth
from quothbench.load.clients import cpu_seconds
from quothbench.load.server import serving
from quothcli.cli.address import is_here

_READY = "quothd: ready "
_COMMAND = (sys.executable, "-c", "from quothd.main import main; main()")


class Target(NamedTuple):
    """Where the broker is. pid: 0 if it runs elsewhere."""

    url: str
    pid: int = 0

    def cpu(self) -> float | None:
        """Seconds of processor time that it has used so far; None if nobody here can tell."""
        return cpu_seconds(self.pid) if self.pid else None


@contextmanager
def own_broker(directory: Path, **settings: object) -> Iterator[Target]:
    """Run `quothd` on a directory. settings: keys of its configuration. Raises `Disconnected`."""
    options = [f"--{key.replace('_', '-')}={value}" for key, value in {"port": 0, **settings}.items()]
    with serving("the broker", [*_COMMAND, "--dir", str(directory), *options], _READY) as server:
        yield Target(server.said.removeprefix(_READY), server.pid)


def running_broker(client: quoth.Client) -> Target:
    """The broker that a client is connected to; its process is known if it is on this machine."""
    return Target(client.url, client.status().pid if is_here(client.url) else 0)
