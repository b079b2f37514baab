"""A service manager as a daemon sees it: a datagram socket for its notifications."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

from kit.deadlines import DEADLINE_S


class Told(NamedTuple):
    """One datagram: its fields, and its time on the monotonic clock in seconds."""

    fields: dict[str, str]
    at: float


class Supervisor:
    """Listens at a path, or at an abstract name that begins with @. `told` holds all datagrams so far."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.told: list[Told] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    @classmethod
    def below(cls, directory: Path) -> Supervisor:
        return cls(str(directory / "notify"))

    def environment(self, watchdog: float = 0.0) -> dict[str, str]:
        """The variables that it gives to a daemon. watchdog: seconds."""
        given = {"NOTIFY_SOCKET": self.address}
        return given | ({"WATCHDOG_USEC": str(int(watchdog * 1e6))} if watchdog else {})

    def close(self) -> None:
        self._socket.close()

    def wait_for(self, name: str, value: str = "1", seconds: float = DEADLINE_S) -> Told:
        """Wait for a new datagram with a field whose value contains this one."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            told = self._receive(left)
            if told is not None and value in told.fields.get(name, ""):
                return told
        raise AssertionError(f"no datagram has {name}={value}: {self.told}")

    def listen(self, seconds: float) -> list[Told]:
        deadline, before = time.monotonic() + seconds, len(self.told)
        while (left := deadline - time.monotonic()) > 0:
            self._receive(left)
        return self.told[before:]

    def forget(self) -> None:
        """Drop all datagrams so far, also those in the queue."""
        while self._receive(0.0) is not None:
            pass
        self.told.clear()

    def names(self) -> list[str]:
        return [next(iter(told.fields)) for told in self.told]

    def _receive(self, seconds: float) -> Told | None:
        self._socket.settimeout(max(seconds, 1e-6))
        try:
            content = self._socket.recv(65_536).decode()
        except (TimeoutError, BlockingIOError):
            return None
        told = Told(dict(line.split("=", 1) for line in content.split("\n") if line), time.monotonic())
        self.told.append(told)
        return told


def abstract_address() -> str:
    return f"@quoth-test-{os.getpid()}-{time.monotonic_ns()}"
