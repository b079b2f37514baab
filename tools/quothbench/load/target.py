"""The target: the server that is measured, a broker or the bare loop, in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import quoth
from quothbench.load.processes import cpu_seconds, serving
from quothcli.cli.session import is_here

_BROKER_READY = "quothd: ready "
_BARE_READY = "bare: ready "


class Target(NamedTuple):
    """The address of a server. pid: 0 if it runs elsewhere."""

    url: str
    pid: int = 0

    def cpu(self) -> float | None:
        """Return the processor seconds that it has used so far; None if they are unknown here."""
        return cpu_seconds(self.pid) if self.pid else None


@contextmanager
def own_broker(directory: Path, **settings: object) -> Iterator[Target]:
    """Run `quothd` on a directory. settings: keys of its configuration. Raises `Disconnected`."""
    options = [f"--{key.replace('_', '-')}={value}" for key, value in {"port": 0, **settings}.items()]
    command = [*_python("quothd.main"), "--dir", str(directory), *options]
    with serving("the broker", command, _BROKER_READY) as server:
        yield Target(server.line.removeprefix(_BROKER_READY), server.pid)


@contextmanager
def bare_loop(path: Path, read_bytes: int = 0) -> Iterator[Target]:
    """Run a bare loop on a file. read_bytes: of each reply; 0: the file gets the payloads of requests."""
    command = [*_python("quothbench.load.bare"), _BARE_READY, str(path), str(read_bytes)]
    with serving("the bare loop", command, _BARE_READY) as server:
        yield Target(server.line.removeprefix(_BARE_READY), server.pid)


def running_broker(client: quoth.Client) -> Target:
    """Return the broker that a client is connected to, with its process if it is on this machine."""
    return Target(client.url, client.status().pid if is_here(client.url) else 0)


def _python(module: str) -> list[str]:
    return [sys.executable, "-c", f"from {module} import main; main()"]
