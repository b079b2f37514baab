"""A service manager as a daemon sees it: a datagram socket for its notifications."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

from kit.deadlines import DEADLINE_S


class Datagram(NamedTuple):
    """One datagram: its fields, and its time on the monotonic clock in seconds."""

    fields: dict[str, str]
    at: float


class Supervisor:
    """Listens at a path, or at an abstract name that begins with @. `received` holds all datagrams so far."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.received: list[Datagram] = []
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

    def wait_for(self, name: str, value: str = "1", seconds: float = DEADLINE_S) -> Datagram:
        """Wait for a new datagram with a field whose value contains this one."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            received = self._receive(left)
            if received is not None and value in received.fields.get(name, ""):
                return received
        raise AssertionError(f"no datagram has {name}={value}: {self.received}")

    def listen(self, seconds: float) -> list[Datagram]:
        deadline, before = time.monotonic() + seconds, len(self.received)
        while (left := deadline - time.monotonic()) > 0:
            self._receive(left)
        return self.received[before:]

    def forget(self) -> None:
        """Drop all datagrams so far, also those in the queue."""
        while self._receive(0.0) is not None:
            pass
        self.received.clear()

    def names(self) -> list[str]:
        return [next(iter(one.fields)) for one in self.received]

    def _receive(self, seconds: float) -> Datagram | None:
        self._socket.settimeout(max(seconds, 1e-6))
        try:
            content = self._socket.recv(65_536).decode()
        except (TimeoutError, BlockingIOError):
            return None
        received = Datagram(
            dict(line.split("=", 1) for line in content.split("\n") if line), time.monotonic()
        )
        self.received.append(received)
        return received


def abstract_address() -> str:
    return f"@quoth-test-{os.getpid()}-{time.monotonic_ns()}"
