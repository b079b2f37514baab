"""Broker processes: on a free port, in a directory of the test, ended by their pid."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kit.daemons import DaemonProcess
from kit.machine.processes import python_of


class BrokerProcess(DaemonProcess):
    """`quothd` as a process: see `DaemonProcess`. Made by the fixtures `start_broker` and `broker`."""

    command = python_of("quothd.main")
    ready = "quothd: ready "

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        popen: Mapping[str, Any] | None = None,
        prefix: Sequence[str] = (),
        **settings: object,
    ) -> None:
        super().__init__(*arguments, environment=environment, popen=popen, prefix=prefix, **settings)
        self.directory = directory

    def own_arguments(self) -> tuple[str, ...]:
        return "--dir", str(self.directory)

    @property
    def announcements(self) -> str:
        address, _, port = self.url.rpartition(":")
        return f"{address}:{int(port) + 1}"

    @property
    def topics_directory(self) -> Path:
        return self.directory / "topics"

    def folder(self, topic: str) -> Path:
        """The folder of a topic, whose name is in it as it is."""
        (found,) = self.topics_directory.glob(f"{topic}~*")
        return found


StartBroker = Callable[..., BrokerProcess]


def behind(code: str) -> tuple[str, ...]:
    """Return the prefix of a command that executes some Python code in the process of the broker first."""
    main = "import sys; del sys.argv[1 : sys.argv.index('--dir')]; from quothd.main import main; main()"
    return sys.executable, "-W", "error", "-c", f"{code}\n{main}"


def on_stderr(descriptor: int) -> tuple[str, ...]:
    """Return the prefix of a command that writes its errors to a descriptor."""
    code = "import os, sys; os.dup2(int(sys.argv[1]), 2); os.execvp(sys.argv[2], sys.argv[2:])"
    return sys.executable, "-c", code, str(descriptor)
